// The servers of the test world: HTTP on 80, HTTPS with HTTP/2 and HTTP/1.1 on 443 and 8443, lines on
// 7000 (raw TCP, the server speaks first), a name server on 53, proxies on 3128 (HTTP), 3129 (the same over
// TLS) and 1080 (SOCKS 5). Every request is written to a log, one JSON line each. Ends when its standard input does.
//
// The name server knows no name but `alias.NUMBER.example`, which is another name for an address that is
// not for sessions. The proxies want to know who comes. Those of HTTP lead to port 443 only, as squid does as
// it is installed, and look into what goes there: they end TLS with a certificate of an authority of their
// own. Plain requests they carry to every port.
//
// Tokens: `sk-test-refresh-FAMILY` at /oauth/token gives `sk-test-access-FAMILY-1` and a refresh token
// with another `-r` behind it, which is the only one that is taken from then on. /protected takes only
// the newest access token of a family. Nothing is given to families that begin with `dead`, and tokens
// of families that begin with `short` expire soon.
//
// Compressed: /coded/CODING says the credential back in that coding, whatever was asked for. Objects: what
// is put below /s3/ is verified as AWS does it, piece by piece, with the key of the tests. Files: what lies
// in `files` is below /files/. /quic announces HTTP/3, which nobody serves.
'use strict';
const fs = require('fs'), http = require('http'), http2 = require('http2'), net = require('net');
const crypto = require('crypto');
const [folder] = process.argv.slice(2);
const log = fs.openSync(`${folder}/log`, 'a');
const write = (record) => fs.writeSync(log, JSON.stringify(record) + '\n');

const families = {};
function token(body, type) {
  const fields = type.includes('json') ? JSON.parse(body) : Object.fromEntries(new URLSearchParams(body));
  const [, family, rotations] = /^sk-test-refresh-([a-z0-9]+?)((?:-r)*)$/.exec(fields.refresh_token || '') || [];
  const count = families[family] || 0;
  if (fields.grant_type !== 'refresh_token' || !family || family.startsWith('dead') || rotations !== '-r'.repeat(count)) {
    return [400, { error: 'invalid_grant', error_description: `not ${fields.refresh_token}` }];
  }
  families[family] = count + 1;
  return [200, {
    access_token: `sk-test-access-${family}-${count + 1}`, refresh_token: fields.refresh_token + '-r',
    token_type: 'Bearer', expires_in: family.startsWith('short') ? 16 : 3600,
  }];
}

function isFresh(authorization) {
  const [, family, count] = /^Bearer sk-test-access-([a-z0-9]+)-([0-9]+)$/.exec(authorization || '') || [];
  return family && Number(count) === families[family];
}

// A repository, for whoever is called `me` and knows the secret of the tests.
const VALUE = 'sk-test-4f6b2a9c7d1e8f3059ab';
const knows = (authorization) => authorization === 'Basic ' + Buffer.from(`me:${VALUE}`).toString('base64');
function repository(request, response, body, url) {
  const [path, query] = url.split('?');
  const git = require('child_process').spawn('git', ['http-backend'], { env: {
    PATH: process.env.PATH, GIT_PROJECT_ROOT: folder, GIT_HTTP_EXPORT_ALL: '1', PATH_INFO: path,
    QUERY_STRING: query || '', REQUEST_METHOD: request.method, CONTENT_TYPE: request.headers['content-type'] || '',
    CONTENT_LENGTH: String(body.length), HTTP_CONTENT_ENCODING: request.headers['content-encoding'] || '',
  } });
  const chunks = [];
  git.stdout.on('data', (chunk) => chunks.push(chunk));
  git.stdin.end(body);
  git.on('close', () => {
    const all = Buffer.concat(chunks), end = all.indexOf('\r\n\r\n');
    let status = 200;
    const headers = {};
    for (const line of all.subarray(0, end).toString().split('\r\n')) {
      const [name, value] = line.split(': ');
      if (name === 'Status') status = Number(value.slice(0, 3)); else headers[name.toLowerCase()] = value;
    }
    response.writeHead(status, headers);
    response.end(all.subarray(end + 4));
  });
}

// A text in a coding.
function coded(text, coding) {
  const zlib = require('zlib'), bytes = Buffer.from(text);
  if (coding === 'gzip') return zlib.gzipSync(bytes);
  if (coding === 'deflate') return zlib.deflateSync(bytes);
  if (coding === 'br') return zlib.brotliCompressSync(bytes);
  // One frame of `zstd` with one raw block.
  const block = Buffer.alloc(3);
  block.writeUIntLE((bytes.length << 3) | 1, 0, 3);
  return Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x20, bytes.length]), block, bytes]);
}

// What is wrong with the signature of a request to AWS, or with one of its pieces; nothing, if all is well.
const AWS = { id: 'AKIDREALREALREAL', key: 'real/secret+of+the+tests/0123456789abcdef' };
const sha = (data) => crypto.createHash('sha256').update(data).digest('hex');
const hmac = (key, data) => crypto.createHmac('sha256', key).update(data).digest();
function unsigned(request, host, body) {
  const found = /^AWS4-HMAC-SHA256 Credential=([^/]+)\/([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/
    .exec(request.headers.authorization || '');
  if (!found) return 'no signature';
  const [, id, scope, names, signature] = found;
  if (id !== AWS.id) return `signed by ${id}`;
  const [path, query] = request.url.split('?');
  const lines = names.split(';').map((name) => `${name}:${(name === 'host' ? host : request.headers[name] || '').trim()}\n`);
  const kind = request.headers['x-amz-content-sha256'], date = request.headers['x-amz-date'];
  const canonical = [request.method, path, query || '', lines.join(''), names, kind].join('\n');
  const key = scope.split('/').reduce((key, part) => hmac(key, part), `AWS4${AWS.key}`);
  const sign = (...parts) => hmac(key, parts.join('\n')).toString('hex');
  if (sign('AWS4-HMAC-SHA256', date, scope, sha(canonical)) !== signature) return 'the head is signed otherwise';
  if (!kind.startsWith('STREAMING-')) return kind === sha(body) || kind === 'UNSIGNED-PAYLOAD' ? '' : 'another body';
  const signed = !kind.startsWith('STREAMING-UNSIGNED'), trailers = kind.endsWith('-TRAILER');
  let at = 0, previous = signature, data = 0;
  const line = () => {
    const end = body.indexOf('\r\n', at), text = body.toString('latin1', at, end);
    at = end + 2;
    return text;
  };
  for (;;) {
    const [size, mark] = line().split(';chunk-signature='), length = parseInt(size, 16);
    const piece = body.subarray(at, at + length);
    if (signed) {
      previous = sign('AWS4-HMAC-SHA256-PAYLOAD', date, scope, previous, sha(''), sha(piece));
      if (mark !== previous) return `a piece of ${length} is signed otherwise`;
    }
    data += length;
    at += length;
    if (length === 0) break;
    at += 2;
  }
  if (trailers) {
    const checksum = line();
    if (signed && line() !== 'x-amz-trailer-signature:' + sign('AWS4-HMAC-SHA256-TRAILER', date, scope, previous, sha(checksum + '\n'))) {
      return 'the trailer is signed otherwise';
    }
  }
  if (String(data) !== request.headers['x-amz-decoded-content-length']) return 'another length';
  return at + 2 === body.length ? '' : `${body.length - at} bytes at the end`;
}

function serve(scheme) {
  return (request, response) => {
    const host = request.headers[':authority'] || request.headers.host || '';
    const chunks = [];
    // What is too large to be kept is counted.
    const sink = request.url.startsWith('/sink'), swallowed = { bytes: 0 };
    request.on('data', (chunk) => { if (sink) swallowed.bytes += chunk.length; else chunks.push(chunk); });
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const headers = Object.fromEntries(Object.entries(request.headers).filter(([k]) => !k.startsWith(':')));
      write({
        scheme, host, method: request.method, url: request.url, headers,
        version: request.httpVersion, length: body.length, body: body.toString().slice(0, 200),
      });
      const path = request.url.split('?')[0];
      if (sink) {
        response.writeHead(200, { 'content-type': 'text/plain' });
        response.end(String(swallowed.bytes));
      } else if (path === '/echo') {
        response.writeHead(200, { 'content-type': 'application/json', 'x-seen': headers.authorization || 'none' });
        response.end(JSON.stringify({ headers, body: body.toString() }));
      } else if (path === '/events') {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: one\n\n');
        setTimeout(() => response.end('data: two\n\n'), 700);
      } else if (path === '/recorded') {
        // Who asked is still there when somebody looks for them.
        response.writeHead(200, { 'content-type': 'text/plain' });
        setTimeout(() => response.end('recorded\n'), 300);
      } else if (path.startsWith('/coded/')) {
        const coding = path.slice('/coded/'.length);
        response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': coding });
        response.end(coded(`you sent ${headers.authorization || 'nothing'}\n`, coding));
      } else if (path.startsWith('/s3/')) {
        const wrong = unsigned(request, host, body);
        response.writeHead(wrong ? 403 : 200);
        response.end(wrong || 'signed well');
      } else if (path.startsWith('/files/') && !path.includes('..')) {
        const file = folder + path + (path.endsWith('/') ? 'index.html' : '');
        const found = fs.existsSync(file) && fs.statSync(file).isFile();
        const html = file.endsWith('.html') ? { 'content-type': 'text/html' } : {};
        response.writeHead(found ? 200 : 404, html);
        response.end(found ? fs.readFileSync(file) : '');
      } else if (path.startsWith('/quic')) {
        const script = path.endsWith('.js');
        response.writeHead(200, {
          'content-type': script ? 'text/javascript' : 'text/html', 'cache-control': 'no-store',
          'alt-svc': 'h3=":443"; ma=3600, h3-29=":443"; ma=3600',
        });
        response.end(script ? 'document.body.append("the script came");' : '<p>the page came</p><script src="/quic/later.js"></script>');
      } else if (path.startsWith('/big/')) {
        const rest = { bytes: Number(path.split('/')[2]) };
        response.writeHead(200, { 'content-length': rest.bytes });
        const block = Buffer.alloc(65536, 'x');
        const push = () => {
          while (rest.bytes > 0) {
            const piece = block.subarray(0, Math.min(rest.bytes, block.length));
            rest.bytes -= piece.length;
            if (!response.write(piece)) { response.once('drain', push); return; }
          }
          response.end();
        };
        push();
      } else if (path === '/oauth/token') {
        const [status, answer] = token(body.toString(), headers['content-type'] || '');
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(answer));
      } else if (path.startsWith('/protected')) {
        const fresh = isFresh(headers.authorization);
        response.writeHead(fresh ? 200 : 401, { 'content-type': 'text/plain' });
        response.end(fresh ? `fresh ${body.length}\n` : 'expired\n');
      } else if (/^\/open\/\w+\/repository.git\//.test(path)) {
        repository(request, response, body, request.url.replace(/^\/open\/\w+/, ''));
      } else if (path.startsWith('/repository.git/')) {
        if (knows(headers.authorization)) { repository(request, response, body, request.url); return; }
        response.writeHead(401, { 'www-authenticate': 'Basic realm="tests"' });
        response.end();
      } else if (path.startsWith('/private')) {
        const known = knows(headers.authorization) || headers.authorization === `Bearer ${VALUE}`;
        response.writeHead(known ? 200 : 401, { 'www-authenticate': 'Basic realm="tests"' });
        response.end(known ? 'welcome\n' : 'who are you\n');
      } else if (path === '/thing') {
        if (headers.authorization !== `Bearer ${VALUE}`) { response.writeHead(401); response.end(); return; }
        response.writeHead(200, { 'content-type': 'application/json' });
        const version = { name: 'thing', version: '1.2.3', dist: { tarball: 'https://api.example/thing.tgz' } };
        response.end(JSON.stringify({ name: 'thing', 'dist-tags': { latest: '1.2.3' }, versions: { '1.2.3': version } }));
      } else if (path === '/file') {
        response.writeHead(200, { 'content-type': 'text/plain' });
        response.end('the file\n');
      } else {
        response.writeHead(200, { 'content-type': 'text/plain' });
        response.end(`hello from ${host}\n`);
      }
    });
  };
}

// WebSocket: every text frame comes back.
function upgrade(request, socket) {
  write({ scheme: 'ws', host: request.headers.host, method: request.method, url: request.url, headers: request.headers });
  const accept = crypto.createHash('sha1')
    .update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  socket.on('data', (frame) => {
    if ((frame[0] & 15) === 8) { socket.end(); return; }
    const length = frame[1] & 127, mask = frame.subarray(2, 6);
    const text = Buffer.from(frame.subarray(6, 6 + length).map((byte, i) => byte ^ mask[i % 4]));
    socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
  });
  socket.on('error', () => {});
}

// Names.
const dgram = require('dgram');
const ALIASES = { 1: [127, 0, 0, 1], 2: [10, 1, 2, 3], 3: [169, 254, 169, 254] };
function labels(question) {
  const labels = [];
  for (let at = 12; question[at]; at += question[at] + 1) labels.push(question.toString('latin1', at + 1, at + 1 + question[at]));
  return labels;
}
function named(question, transport) {
  const name = labels(question);
  write({ scheme: 'dns', url: name.join('.'), length: question.length, transport });
  const address = name[0] === 'alias' && ALIASES[name[1]];
  const end = 12 + name.reduce((sum, label) => sum + label.length + 1, 1) + 4;
  const head = Buffer.from(question.subarray(0, 12)), asked = question.subarray(12, end);
  head.writeUInt16BE(address ? 0x8180 : 0x8183, 2);
  head.writeUInt16BE(0, 8);
  head.writeUInt16BE(0, 10);
  if (!address || question.readUInt16BE(end - 4) !== 1) {
    if (address) head.writeUInt16BE(0x8180, 2);
    return Buffer.concat([head, asked]);
  }
  // alias.N.example is denied.inward, and that is the address.
  head.writeUInt16BE(2, 6);
  const other = Buffer.from('\x06denied\x06inward\0', 'latin1');
  const record = (owner, kind, data) => {
    const rest = Buffer.alloc(10);
    rest.writeUInt16BE(kind, 0); rest.writeUInt16BE(1, 2); rest.writeUInt32BE(0, 4); rest.writeUInt16BE(data.length, 8);
    return Buffer.concat([owner, rest, data]);
  };
  return Buffer.concat([
    head, asked, record(Buffer.from([0xc0, 12]), 5, other), record(other, 1, Buffer.from(address)),
  ]);
}
const names = dgram.createSocket('udp4');
names.on('message', (question, from) => {
  if (question.includes('stuck')) return;
  names.send(named(question, 'udp'), from.port, from.address);
});
names.bind(53);
for (const port of [53, 853]) {
  net.createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => write({ scheme: 'dns', url: data.toString('latin1'), length: data.length, transport: `tcp ${port}` }));
  }).listen(port, '0.0.0.0');
}

// Proxies.
const certified = {
  key: fs.readFileSync(`${folder}/corporate.key`), cert: fs.readFileSync(`${folder}/corporate-server.pem`),
};
const corporate = http2.createSecureServer({ ...certified, allowHTTP1: true }, serve('https'));
const known_to_proxies = (headers) => ['me:secret', 'me:p@ss/'].some((who) =>
  headers['proxy-authorization'] === 'Basic ' + Buffer.from(who).toString('base64'));
function forward(request, response) {
  write({ scheme: 'proxy', method: request.method, url: request.url, headers: request.headers, tls: !!request.socket.encrypted });
  if (!known_to_proxies(request.headers)) { response.writeHead(407, { 'proxy-authenticate': 'Basic' }); response.end(); return; }
  if (!/^http:\/\//.test(request.url)) { response.writeHead(400); response.end(); return; }
  const { port, pathname, search } = new URL(request.url);
  const { 'proxy-authorization': _who, ...headers } = request.headers;
  const onward = http.request(
    { host: '127.0.0.1', port: port || 80, method: request.method, path: pathname + search, headers },
    (answer) => { response.writeHead(answer.statusCode, answer.headers); answer.pipe(response); },
  );
  onward.on('error', () => { response.writeHead(502); response.end(); });
  request.pipe(onward);
}
function lead(request, socket) {
  write({ scheme: 'proxy', method: 'CONNECT', url: request.url, headers: request.headers, tls: !!socket.encrypted });
  socket.on('error', () => {});
  if (!known_to_proxies(request.headers)) { socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'); return; }
  if (Number(request.url.split(':').pop()) !== 443) { socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n'); return; }
  socket.write('HTTP/1.1 200 OK\r\n\r\n');
  corporate.emit('connection', socket);
}
http.createServer(forward).on('connect', lead).listen(3128, '0.0.0.0');
require('https').createServer(certified, forward).on('connect', lead).listen(3129, '0.0.0.0');
net.createServer((socket) => {
  let step = 0, bytes = Buffer.alloc(0);
  const more = (data) => {
    bytes = Buffer.concat([bytes, data]);
    if (step === 0 && bytes.length >= 2 + bytes[1]) {
      const methods = bytes.subarray(2, 2 + bytes[1]);
      bytes = bytes.subarray(2 + bytes[1]); step = 1;
      socket.write(Buffer.from([5, methods.includes(2) ? 2 : 255]));
    }
    if (step === 1 && bytes.length > 2 && bytes.length >= 3 + bytes[1] + bytes[2 + bytes[1]]) {
      const [user, password] = [bytes.subarray(2, 2 + bytes[1]), bytes.subarray(3 + bytes[1], 3 + bytes[1] + bytes[2 + bytes[1]])];
      bytes = bytes.subarray(3 + user.length + password.length); step = 2;
      const known = `${user}:${password}` === 'me:p@ss/';
      socket.write(Buffer.from([1, known ? 0 : 1]));
      if (!known) { socket.end(); return; }
    }
    if (step === 2 && bytes.length > 5 && bytes.length >= 7 + bytes[4]) {
      // Only names: nobody else looks them up.
      const [name, port] = [bytes.subarray(5, 5 + bytes[4]).toString(), bytes.readUInt16BE(5 + bytes[4])];
      write({ scheme: 'socks', url: `${name}:${port}`, kind: bytes[3] });
      step = 3; socket.off('data', more);
      const far = net.connect(port, '127.0.0.1', () => {
        socket.write(Buffer.from([5, 0, 0, 1, 127, 0, 0, 1, 0, 0]));
        far.pipe(socket).pipe(far);
      });
      far.on('error', () => { socket.end(Buffer.from([5, 5, 0, 1, 0, 0, 0, 0, 0, 0])); });
    }
  };
  socket.on('data', more);
  socket.on('error', () => {});
}).listen(1080, '0.0.0.0');

const plain = http.createServer(serve('http'));
plain.on('upgrade', upgrade);
plain.listen(80, '::');
const tls = { key: fs.readFileSync(`${folder}/server.key`), cert: fs.readFileSync(`${folder}/server.pem`) };
for (const port of [443, 8443]) {
  const secure = http2.createSecureServer({ ...tls, allowHTTP1: true }, serve('https'));
  secure.on('upgrade', upgrade);
  secure.on('session', () => {});
  secure.listen(port, '::');
}
net.createServer((socket) => {
  socket.on('error', () => {});
  socket.write('greetings\n');
  socket.on('data', (data) => { write({ scheme: 'tcp', body: data.toString() }); socket.end('heard ' + data); });
}).listen(7000, '::', () => process.stdout.write('ready\n'));
process.stdin.on('end', () => process.exit(0)).resume();
process.on('uncaughtException', (error) => write({ scheme: 'error', body: String(error) }));
