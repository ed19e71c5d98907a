// The servers of the test world: HTTP on 80, HTTPS with HTTP/2 and HTTP/1.1 on 443 and 8443, lines on
// 7000 (raw TCP, the server speaks first). Every request is written to a log, one JSON line each. Ends
// when its standard input does.
'use strict';
const fs = require('fs'), http = require('http'), http2 = require('http2'), net = require('net');
const crypto = require('crypto');
const [folder] = process.argv.slice(2);
const log = fs.openSync(`${folder}/log`, 'a');
const write = (record) => fs.writeSync(log, JSON.stringify(record) + '\n');

function serve(scheme) {
  return (request, response) => {
    const host = request.headers[':authority'] || request.headers.host || '';
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const headers = Object.fromEntries(Object.entries(request.headers).filter(([k]) => !k.startsWith(':')));
      write({
        scheme, host, method: request.method, url: request.url, headers,
        version: request.httpVersion, length: body.length, body: body.toString().slice(0, 200),
      });
      const path = request.url.split('?')[0];
      if (path === '/echo') {
        response.writeHead(200, { 'content-type': 'application/json', 'x-seen': headers.authorization || 'none' });
        response.end(JSON.stringify({ headers, body: body.toString() }));
      } else if (path === '/events') {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: one\n\n');
        setTimeout(() => response.end('data: two\n\n'), 700);
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
