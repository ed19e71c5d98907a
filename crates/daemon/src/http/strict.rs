//! JSON that is what the document says.
//!
//! Derived readers differ from it: they take a list in place of an object, its fields in order,
//! and no `1.0` where an integer is wanted, which it is. A field that is there twice is refused.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Error, Map, Value};
use std::fmt;

/// Reads a value.
pub(super) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    T::deserialize(serde_json::from_slice::<Strict>(text)?)
}

/// A value that refuses to be taken for something else.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

/// Reads any value.
struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // An integer has no point when it is written.
        let integer = value.to_string().parse::<i64>();
        Ok(integer.map_or_else(|_fraction| value.into(), Value::from))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = fields.next_entry::<String, Strict>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

impl IntoDeserializer<'_, Error> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Strict)))
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, Strict(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            value => visitor.visit_some(Self(value)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Error::custom(format!("{name} is an object"))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::from_slice;
    use cowork_client::types::{NewCommand, NewSession, SessionChange};

    #[test]
    fn a_list_is_no_object() {
        assert!(serde_json::from_str::<SessionChange>(r#"{"limits":[null]}"#).is_ok());
        assert!(from_slice::<SessionChange>(br#"{"limits":[null]}"#).is_err());
        assert!(from_slice::<NewSession>(b"[]").is_err());
        assert!(from_slice::<NewCommand>(br#"{"argv":[["aGk="]]}"#).is_err());
    }

    #[test]
    fn what_fits_is_read() {
        let read = br#"{"argv":["a",{"base64":"/w=="}],"streams":{"stdin":"pipe"},"size":null}"#;
        let command: NewCommand = from_slice(read).unwrap();
        assert_eq!(command.argv.len(), 2);
        assert_eq!(command.argv[1].bytes().unwrap(), b"\xff");
        let command: NewCommand = from_slice(br#"{"umask":18.0}"#).unwrap();
        assert_eq!(command.umask, Some(18));
    }

    #[test]
    fn a_field_is_there_once() {
        assert!(from_slice::<NewCommand>(br#"{"shell":"a","shell":"b"}"#).is_err());
        assert!(from_slice::<NewCommand>(br#"{"env":{"A":"a","A":"b"}}"#).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bad = ["", "{", "1", "\"\"", "null", "{} {}", r#"{"umask":1.5}"#, r#"{"umask":-1}"#];
        for text in bad {
            assert!(from_slice::<NewCommand>(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(from_slice::<NewCommand>(deep.as_bytes()).is_err());
    }
}
