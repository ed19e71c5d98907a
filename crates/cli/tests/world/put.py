"""Puts an object with a body of a kind (x-amz-content-sha256), a size, and a size of pieces."""
import hashlib, hmac, http.client, os, sys, time

kind, size, piece = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
name, key = os.environ["AWS_PAIR"].split(":")
sha = lambda data: hashlib.sha256(data).hexdigest()
mac = lambda key, text: hmac.new(key, text.encode(), hashlib.sha256).digest()

data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
scope = f"{date[:8]}/us-east-1/s3/aws4_request"
headers = {"host": "api.example", "x-amz-date": date, "x-amz-content-sha256": kind}
streaming, trailer = kind.startswith("STREAMING-"), kind.endswith("-TRAILER")
if streaming:
    headers["content-encoding"] = "aws-chunked"
    headers["x-amz-decoded-content-length"] = str(size)
if trailer:
    headers["x-amz-trailer"] = "x-amz-checksum-sha256"
names = sorted(headers)
canonical = "\n".join(["PUT", "/s3/object", "", *(f"{n}:{headers[n]}" for n in names), "", ";".join(names), kind])
signing = ("AWS4" + key).encode()
for part in scope.split("/"):
    signing = mac(signing, part)
sign = lambda *parts: mac(signing, "\n".join(parts)).hex()
previous = sign("AWS4-HMAC-SHA256", date, scope, sha(canonical.encode()))
headers["authorization"] = (
    f"AWS4-HMAC-SHA256 Credential={name}/{scope}, SignedHeaders={';'.join(names)}, Signature={previous}"
)
body = data
if streaming:
    signed, body = "UNSIGNED" not in kind, b""
    for part in [data[at : at + piece] for at in range(0, size, piece)] + [b""]:
        head = f"{len(part):x}"
        if signed:
            previous = sign("AWS4-HMAC-SHA256-PAYLOAD", date, scope, previous, sha(b""), sha(part))
            head += f";chunk-signature={previous}"
        body += head.encode() + b"\r\n" + part + (b"\r\n" if part or not trailer else b"")
    if trailer:
        line = "x-amz-checksum-sha256:" + sha(data)
        body += line.encode() + b"\r\n"
        if signed:
            last = sign("AWS4-HMAC-SHA256-TRAILER", date, scope, previous, sha((line + "\n").encode()))
            body += f"x-amz-trailer-signature:{last}\r\n".encode()
        body += b"\r\n"
connection = http.client.HTTPSConnection("api.example")
connection.request("PUT", "/s3/object", body, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode().replace("\n", " "))
