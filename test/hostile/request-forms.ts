/**
 * Forms of requests, as raw bytes, with what RFC 9112 lets an origin receive of each. `{H}` stands for the headers of a valid request,
 * `{K}` for the same without Host, and `{SMUGGLED-LENGTH}` for the length of the request that must not be executed.
 */
import { FIN, type Step } from './steps.ts'

export interface RequestForm {
  name: string
  steps: readonly Step[]
  /**
   * - `accepted`: the origin gets all requests of `may`, and each has a reply of it.
   * - `refused`: the origin gets nothing, and the first reply is an error, or the connection is closed.
   * - `either`: the origin gets these requests or fewer.
   * - `waits`: as `either`; the gateway may wait for more bytes, without a reply.
   */
  verdict: 'accepted' | 'refused' | 'either' | 'waits'
  /** What the origin may receive: methods and targets. Gateways may send pipelined requests at the same time. */
  may: readonly (string | RegExp)[]
  /** Of the requests. Default: GET */
  methods?: readonly string[]
  /** The body that the origin must get with the first request. */
  body?: string
  /** Statuses of the replies in their order. */
  statuses?: readonly number[]
  /** Where packets end, as offsets in the bytes: negative ones count from their end. */
  packets?: (length: number) => readonly number[]
  /** What local workerd does otherwise, which no Worker can change. Then only other clients are checked there. */
  platform?: string
}

type Options = Pick<RequestForm, 'methods' | 'body' | 'statuses' | 'packets' | 'platform'>

const of =
  (verdict: RequestForm['verdict']) =>
  (
    name: string,
    bytes: string | readonly Step[],
    may: readonly (string | RegExp)[] = [],
    options: Options = {},
  ): RequestForm => ({
    ...{ name, steps: typeof bytes === 'string' ? [bytes] : bytes, verdict, may },
    ...options,
  })
const [accepted, either, waits] = [of('accepted'), of('either'), of('waits')]
const refused = (name: string, bytes: string | readonly Step[], options: Options = {}) =>
  of('refused')(name, bytes, [], options)

const get = (target: string, more = '') => `GET ${target} HTTP/1.1\r\n{H}${more}\r\n`
const post = (headers: string, body: string, target = '/first') =>
  `POST ${target} HTTP/1.1\r\n{H}${headers}\r\n${body}`
const LAST = get('/last', 'Connection: close\r\n')
/** Behind a message that must be refused. Whether it is a request or part of a body, it must not be executed. */
export const SMUGGLED = 'GET /smuggled HTTP/1.1\r\n{H}\r\n'
const [FIRST, THEN_LAST, FIRST_POST] = ['GET /first', 'GET /last', 'POST /first']

const methods: readonly RequestForm[] = [
  accepted('an unknown method', `PURGE /first HTTP/1.1\r\n{H}\r\n${LAST}`, ['PURGE /first', THEN_LAST]),
  either('a method in lower case', `get /first HTTP/1.1\r\n{H}\r\n${LAST}`, [
    /^(get|GET) \/first$/,
    THEN_LAST,
  ]),
  either('a method of 5000 letters', `${'A'.repeat(5000)} /first HTTP/1.1\r\n{H}\r\n`, [/^A+ \/first$/]),
  either('a method of special characters', `!#$%&'*+-.^_\`|~ /first HTTP/1.1\r\n{H}\r\n`, [/^\S+ \/first$/]),
  refused('a method with a colon', `GE:T /first HTTP/1.1\r\n{H}\r\n${SMUGGLED}`),
  refused('no method', ` /first HTTP/1.1\r\n{H}\r\n${SMUGGLED}`),
  refused('CONNECT with bytes for a tunnel', `CONNECT a.test:443 HTTP/1.1\r\n{H}\r\n${SMUGGLED}`),
  refused('CONNECT of a path', `CONNECT /first HTTP/1.1\r\n{H}\r\n${SMUGGLED}`),
  either('TRACE', `TRACE /first HTTP/1.1\r\n{H}Connection: close\r\n\r\n`, ['TRACE /first']),
  either('TRACE with a request behind', `TRACE /first HTTP/1.1\r\n{H}\r\n${LAST}`, [
    'TRACE /first',
    THEN_LAST,
  ]),
  refused(
    'PRI, the preface of HTTP/2',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00',
  ),
  refused('the preface of HTTP/2 with a request behind', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${SMUGGLED}`),
  refused('a ClientHello of TLS', `\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03${'\x5a'.repeat(80)}`),
  refused('bytes that are not a request', '\x00\x01\x02\x03\r\n\r\n'),
  refused('the preamble of PROXY', `PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n${SMUGGLED}`),
  accepted('OPTIONS of a path', `OPTIONS /first HTTP/1.1\r\n{H}\r\n${LAST}`, ['OPTIONS /first', THEN_LAST]),
  accepted(
    'DELETE with a body',
    `DELETE /first HTTP/1.1\r\n{H}Content-Length: 3\r\n\r\nabc${LAST}`,
    ['DELETE /first', THEN_LAST],
    { body: 'abc' },
  ),
  accepted(
    'GET with a body',
    `GET /first HTTP/1.1\r\n{H}Content-Length: 3\r\n\r\nabc${LAST}`,
    [FIRST, THEN_LAST],
    { body: 'abc' },
  ),
  accepted(
    'GET with a body that is a request',
    `GET /first HTTP/1.1\r\n{H}Content-Length: {SMUGGLED-LENGTH}\r\n\r\n${SMUGGLED}${LAST}`,
    [FIRST, THEN_LAST],
  ),
  either(
    'HEAD with a body',
    `HEAD /first HTTP/1.1\r\n{H}Content-Length: 3\r\n\r\nabc${LAST}`,
    ['HEAD /first', THEN_LAST],
    { methods: ['HEAD'] },
  ),
]

const targets: readonly RequestForm[] = [
  accepted('an absolute target', get('http://a.test/first') + LAST, [FIRST, THEN_LAST]),
  either('an absolute target with another host', get('http://other.test/first') + LAST, [FIRST, THEN_LAST]),
  either('an absolute target of https', get('https://a.test/first') + LAST, [FIRST, THEN_LAST]),
  either('an absolute target of another scheme', get('file:///etc/passwd') + LAST, [
    /^GET \/\S*$/,
    THEN_LAST,
  ]),
  either('an absolute target without a path', get('http://a.test') + LAST, ['GET /', THEN_LAST]),
  either('an absolute target with userinfo', get('http://u:p@a.test/first') + LAST, [FIRST, THEN_LAST]),
  either('the authority as target', get('a.test:80') + LAST, [THEN_LAST], { platform: 'it forwards GET /' }),
  either('an asterisk with GET', get('*') + LAST, [/^GET \/\*?$/, THEN_LAST]),
  either('an asterisk with OPTIONS', `OPTIONS * HTTP/1.1\r\n{H}\r\n${LAST}`, [
    /^OPTIONS (\*|\/\*?)$/,
    THEN_LAST,
  ]),
  either('a fragment', get('/first#part') + LAST, [FIRST, THEN_LAST]),
  either('a fragment in the query', get('/first?a#part') + LAST, ['GET /first?a', THEN_LAST]),
  refused('a space in the target', get('/fi rst') + SMUGGLED),
  refused('a space and a version in the target', get('/first HTTP/1.1 /x') + SMUGGLED),
  either('a tab in the target', get('/fi\trst') + LAST, [/^GET \/fi(%09)?rst$/, THEN_LAST]),
  either('a control character in the target', get('/fi\x01rst') + LAST, ['GET /fi%01rst', THEN_LAST]),
  refused('NUL in the target', get('/fi\x00rst') + SMUGGLED),
  refused('a bare CR in the target', get('/first\rX') + SMUGGLED),
  either('DEL in the target', get('/fi\x7frst') + LAST, [/^GET \/fi(\x7f|%7F)rst$/, THEN_LAST]),
  either('UTF-8 in the target', get('/\xc3\xbc') + LAST, [
    /^GET \/(%C3%BC|%C3%83%C2%BC|\xc3\xbc)$/i,
    THEN_LAST,
  ]),
  either('Latin-1 in the target', get('/\xfc') + LAST, [/^GET \/(%FC|%C3%BC|%EF%BF%BD|\xfc)$/i, THEN_LAST]),
  either('a target of 8 kB', get(`/${'x'.repeat(8000)}`) + LAST, [/^GET \/x+$/, THEN_LAST]),
  either('a target of 20 kB', get(`/${'x'.repeat(20_000)}`) + LAST, [/^GET \/x+$/, THEN_LAST]),
  either('a target that begins with //host', get('//other.test/first') + LAST, [
    /^GET (\/\/other\.test)?\/first$/,
    THEN_LAST,
  ]),
  either('dot segments', get('/a/../first') + LAST, [FIRST, THEN_LAST]),
  either('dot segments above the root', get('/../../first') + LAST, [FIRST, THEN_LAST]),
  either('encoded dot segments', get('/a/%2e%2E/first') + LAST, [FIRST, THEN_LAST]),
  either('encoded slashes', get('/a%2f..%2ffirst') + LAST, ['GET /a%2f..%2ffirst', THEN_LAST]),
  either('backslashes', get('/a\\..\\first') + LAST, [/^GET \/(first|a\\\.\.\\first)$/, THEN_LAST]),
  either('an encoded line end', get('/first%0d%0aX-Evil:%201') + LAST, [
    'GET /first%0d%0aX-Evil:%201',
    THEN_LAST,
  ]),
  either('percent signs that encode nothing', get('/%zz%') + LAST, ['GET /%zz%', THEN_LAST]),
  either('a question mark alone', get('/first?') + LAST, [/^GET \/first\??$/, THEN_LAST]),
  refused('no target', `GET HTTP/1.1\r\n{H}\r\n${SMUGGLED}`),
  refused('a relative target', get('first') + SMUGGLED, {
    platform: 'it forwards GET /, and the request behind',
  }),
  either('two spaces before the target', `GET  /first HTTP/1.1\r\n{H}\r\n`, [FIRST]),
]

const versions: readonly RequestForm[] = [
  waits('HTTP/0.9', 'GET /first\r\n'),
  refused('HTTP/0.9 with headers behind', `GET /first\r\n{H}\r\n${SMUGGLED}`),
  either('HTTP/1.0', 'GET /first HTTP/1.0\r\n{H}\r\n', [FIRST]),
  either('HTTP/1.0 with a request behind', `GET /first HTTP/1.0\r\n{H}\r\n${SMUGGLED}`, [FIRST]),
  either('HTTP/1.0 without Host', 'GET /first HTTP/1.0\r\n{K}\r\n', [FIRST]),
  either('HTTP/1.0 with keep-alive', `GET /first HTTP/1.0\r\n{H}Connection: keep-alive\r\n\r\n${LAST}`, [
    FIRST,
    THEN_LAST,
  ]),
  either('HTTP/1.2', `GET /first HTTP/1.2\r\n{H}Connection: close\r\n\r\n`, [FIRST]),
  refused('HTTP/2.0', `GET /first HTTP/2.0\r\n{H}\r\n${SMUGGLED}`),
  refused('HTTP/1.10', `GET /first HTTP/1.10\r\n{H}\r\n${SMUGGLED}`),
  refused('HTTP/1', `GET /first HTTP/1\r\n{H}\r\n${SMUGGLED}`),
  refused('the version in lower case', `GET /first http/1.1\r\n{H}\r\n${SMUGGLED}`),
  refused('another protocol', `GET /first HTTQ/1.1\r\n{H}\r\n${SMUGGLED}`),
  either('two spaces before the version', 'GET /first  HTTP/1.1\r\n{H}\r\n', [FIRST]),
  either('a space behind the version', 'GET /first HTTP/1.1 \r\n{H}\r\n', [FIRST]),
]

const hosts: readonly RequestForm[] = [
  refused('no Host', `GET /first HTTP/1.1\r\n{K}\r\n${SMUGGLED}`, {
    platform: 'it refuses the request, and forwards the one behind',
  }),
  refused('Host twice', `GET /first HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n{K}\r\n${SMUGGLED}`),
  refused('Host twice, equal', `GET /first HTTP/1.1\r\nHost: a.test\r\nhost: a.test\r\n{K}\r\n${SMUGGLED}`),
  either('Host empty', 'GET /first HTTP/1.1\r\nHost:\r\n{K}Connection: close\r\n\r\n', [FIRST]),
  refused('Host with userinfo', 'GET /first HTTP/1.1\r\nHost: u@a.test\r\n{K}Connection: close\r\n\r\n', {
    platform: 'it forwards the request',
  }),
  refused('Host with a path', 'GET /first HTTP/1.1\r\nHost: a.test/x\r\n{K}Connection: close\r\n\r\n', {
    platform: 'it puts the path of Host before the target',
  }),
  refused(
    'Host with a port that is not a number',
    'GET /first HTTP/1.1\r\nHost: a.test:port\r\n{K}Connection: close\r\n\r\n',
  ),
  refused(
    'Host with a port of 99999',
    'GET /first HTTP/1.1\r\nHost: a.test:99999\r\n{K}Connection: close\r\n\r\n',
  ),
  refused('Host with a comma', 'GET /first HTTP/1.1\r\nHost: a.test, b.test\r\n{K}Connection: close\r\n\r\n'),
  refused('Host with a space', 'GET /first HTTP/1.1\r\nHost: a.test b.test\r\n{K}Connection: close\r\n\r\n'),
]

const length = (name: string, lines: string) =>
  refused(`Content-Length ${name}`, post(`${lines}\r\n`, `abc${SMUGGLED}`))
const lengths: readonly RequestForm[] = [
  accepted('a body', post('Content-Length: 3\r\n', 'abc') + LAST, [FIRST_POST, THEN_LAST], { body: 'abc' }),
  accepted('POST without a body', post('Content-Length: 0\r\n', '') + LAST, [FIRST_POST, THEN_LAST], {
    body: '',
  }),
  either('POST without a length', post('', '') + LAST, [FIRST_POST, THEN_LAST]),
  either('Content-Length twice, equal', post('Content-Length: 3\r\nContent-Length: 3\r\n', `abc${LAST}`), [
    FIRST_POST,
    THEN_LAST,
  ]),
  length('twice, different', 'Content-Length: 3\r\nContent-Length: 0'),
  either('Content-Length in a list, equal', post('Content-Length: 3, 3\r\n', `abc${LAST}`), [
    FIRST_POST,
    THEN_LAST,
  ]),
  length('in a list, different', 'Content-Length: 3, 0'),
  length('with a plus sign', 'Content-Length: +3'),
  length('negative', 'Content-Length: -3'),
  length('with a space in it', 'Content-Length: 0 3'),
  length('in hexadecimal', 'Content-Length: 0x3'),
  length('of 2^64 + 3', 'Content-Length: 18446744073709551619'),
  length('of 400 digits', `Content-Length: 1${'0'.repeat(399)}`),
  length('with a decimal point', 'Content-Length: 3.0'),
  length('with an exponent', 'Content-Length: 3e0'),
  length('of letters', 'Content-Length: abc'),
  length('empty', 'Content-Length:'),
  length('in quotes', 'Content-Length: "3"'),
  length('with a space before the colon', 'Content-Length : 3'),
  length('in a folded line', 'Content-Length:\r\n 3'),
  length('with a vertical tab', 'Content-Length: \x0b3'),
  either('Content_Length', post('Content_Length: 3\r\n', '') + LAST, [FIRST_POST, THEN_LAST]),
  either('Content-Length with leading zeros', post('Content-Length: 003\r\n', `abc${LAST}`), [
    FIRST_POST,
    THEN_LAST,
  ]),
  waits('a body that does not come', post('Content-Length: 10\r\n', 'abc'), [FIRST_POST]),
  waits('a body that ends with a FIN', [post('Content-Length: 10\r\n', 'abc'), 5, FIN], [FIRST_POST]),
]

const CHUNKS = '3\r\nabc\r\n0\r\n\r\n'
const LAST_CODING = 'it reads the last coding only, and forwards the body and the request behind'
const coding = (name: string, lines: string, options: Options = {}) =>
  refused(`Transfer-Encoding ${name}`, post(`${lines}\r\n`, CHUNKS + SMUGGLED), options)
/** RFC 9112, section 6.3: Transfer-Encoding overrides Content-Length, or the message is refused. The connection is closed behind it. */
const codings: readonly RequestForm[] = [
  accepted('chunks', post('Transfer-Encoding: chunked\r\n', CHUNKS) + LAST, [FIRST_POST, THEN_LAST], {
    body: 'abc',
  }),
  accepted(
    'Transfer-Encoding: CHUNKED',
    post('Transfer-Encoding: CHUNKED\r\n', CHUNKS) + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
  either('Transfer-Encoding with tabs', post('Transfer-Encoding: \tchunked\t\r\n', CHUNKS) + LAST, [
    FIRST_POST,
    THEN_LAST,
  ]),
  either(
    'Content-Length and Transfer-Encoding',
    post('Content-Length: 3\r\nTransfer-Encoding: chunked\r\n', `${CHUNKS}${SMUGGLED}`),
    [FIRST_POST],
  ),
  either(
    'Transfer-Encoding and Content-Length',
    post('Transfer-Encoding: chunked\r\nContent-Length: 100\r\n', `${CHUNKS}${SMUGGLED}`),
    [FIRST_POST],
  ),
  coding('in quotes', 'Transfer-Encoding: "chunked"'),
  coding('xchunked', 'Transfer-Encoding: xchunked'),
  either('Transfer-Encoding: chunked,', post('Transfer-Encoding: chunked,\r\n', CHUNKS), [FIRST_POST]),
  either('Transfer-Encoding: , chunked', post('Transfer-Encoding: , chunked\r\n', CHUNKS), [FIRST_POST]),
  coding('gzip, chunked', 'Transfer-Encoding: gzip, chunked', { platform: LAST_CODING }),
  coding('gzip', 'Transfer-Encoding: gzip'),
  coding('identity', 'Transfer-Encoding: identity'),
  coding('chunked, identity', 'Transfer-Encoding: chunked, identity'),
  coding('chunked, chunked', 'Transfer-Encoding: chunked, chunked', { platform: LAST_CODING }),
  coding('twice', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', { platform: LAST_CODING }),
  coding('twice, of which one is identity', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity'),
  coding('identity with a length', 'Content-Length: 13\r\nTransfer-Encoding: identity'),
  either('Transfer-Encoding in a folded line', post('Transfer-Encoding:\r\n chunked\r\n', CHUNKS), [
    FIRST_POST,
  ]),
  coding('with a space before the colon', 'Transfer-Encoding : chunked'),
  coding('with a vertical tab', 'Transfer-Encoding: \x0bchunked'),
  coding('with a parameter', 'Transfer-Encoding: chunked;q=1'),
  coding('with NUL', 'Transfer-Encoding: chunked\x00'),
  coding('empty', 'Transfer-Encoding:'),
  either('Transfer_Encoding', post('Transfer_Encoding: chunked\r\nContent-Length: 0\r\n', '') + LAST, [
    FIRST_POST,
    THEN_LAST,
  ]),
  refused(
    'Transfer-Encoding in HTTP/1.0',
    `POST /first HTTP/1.0\r\n{H}Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n${CHUNKS}${SMUGGLED}`,
  ),
]

const chunk = (name: string, body: string) =>
  either(`a chunk with ${name}`, post('Transfer-Encoding: chunked\r\n', body + SMUGGLED), [FIRST_POST])
const chunks: readonly RequestForm[] = [
  chunk('the size 0x3', '0x3\r\nabc\r\n0\r\n\r\n'),
  chunk('the size +3', '+3\r\nabc\r\n0\r\n\r\n'),
  chunk('the size -3', '-3\r\nabc\r\n0\r\n\r\n'),
  chunk('a space before the size', ' 3\r\nabc\r\n0\r\n\r\n'),
  chunk('the size 2^64 + 3', '10000000000000003\r\nabc\r\n0\r\n\r\n'),
  chunk('no size', '\r\nabc\r\n0\r\n\r\n'),
  chunk('a size in letters', 'xyz\r\nabc\r\n0\r\n\r\n'),
  chunk('a size of 3_0', '3_0\r\nabc\r\n0\r\n\r\n'),
  chunk('more bytes than its size', '2\r\nabc\r\n0\r\n\r\n'),
  chunk('fewer bytes than its size', '4\r\nabc\r\n0\r\n\r\n'),
  chunk('a bare CR behind its bytes', '3\r\nabc\r0\r\n\r\n'),
  chunk('a bare LF in its extension', `3;a=\nx\r\nabc\r\n0\r\n\r\n`),
  either('a chunk with bare line feeds', post('Transfer-Encoding: chunked\r\n', `3\nabc\n0\n\n${LAST}`), [
    FIRST_POST,
    THEN_LAST,
  ]),
  either(
    'a chunk with a space behind its size',
    post('Transfer-Encoding: chunked\r\n', `3 \r\nabc\r\n0\r\n\r\n${LAST}`),
    [FIRST_POST, THEN_LAST],
  ),
  either(
    'a chunk with leading zeros',
    post('Transfer-Encoding: chunked\r\n', `0000003\r\nabc\r\n000\r\n\r\n${LAST}`),
    [FIRST_POST, THEN_LAST],
  ),
  accepted(
    'chunks with extensions',
    post('Transfer-Encoding: chunked\r\n', '3;a=b\r\nabc\r\n0;c="d"\r\n\r\n') + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
  either(
    'an extension of 20 kB',
    post('Transfer-Encoding: chunked\r\n', `3;${'a'.repeat(20_000)}\r\nabc\r\n0\r\n\r\n${LAST}`),
    [FIRST_POST, THEN_LAST],
  ),
  accepted(
    'trailers',
    post('Transfer-Encoding: chunked\r\n', '3\r\nabc\r\n0\r\nX-Trailer: yes\r\n\r\n') + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
  either(
    'trailers of a consumer and a length',
    post(
      'Transfer-Encoding: chunked\r\n',
      `3\r\nabc\r\n0\r\nX-Consumer-Id: evil\r\nContent-Length: 500\r\nHost: evil\r\n\r\n${LAST}`,
    ),
    [FIRST_POST, THEN_LAST],
  ),
  waits('the last chunk is missing', post('Transfer-Encoding: chunked\r\n', '3\r\nabc\r\n'), [FIRST_POST]),
  waits(
    'trailers without an end',
    post('Transfer-Encoding: chunked\r\n', '3\r\nabc\r\n0\r\nX-Trailer: a\r\n'),
    [FIRST_POST],
  ),
]

const expectations: readonly RequestForm[] = [
  accepted(
    'Expect: 100-continue, and the body at once',
    post('Expect: 100-continue\r\nContent-Length: 3\r\n', 'abc') + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
  accepted(
    'Expect: 100-continue, and the body later',
    [post('Expect: 100-continue\r\nContent-Length: 3\r\n', ''), 30, `abc${LAST}`],
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
  either('Expect: 100-continue without a body', get('/first', 'Expect: 100-continue\r\n') + LAST, [
    FIRST,
    THEN_LAST,
  ]),
  either('Expect of another kind', post('Expect: 200-ok\r\nContent-Length: 3\r\n', `abc${LAST}`), [
    FIRST_POST,
    THEN_LAST,
  ]),
  either(
    'Expect in HTTP/1.0',
    'POST /first HTTP/1.0\r\n{H}Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc',
    [FIRST_POST],
  ),
  // The refused client may send its body or the next request, so the bytes behind are neither for certain.
  either(
    'Expect: 100-continue of a refused request',
    `POST /used-up HTTP/1.1\r\n{H}Expect: 100-continue\r\nContent-Length: {SMUGGLED-LENGTH}\r\n\r\n${SMUGGLED}`,
    [],
    { statuses: [429] },
  ),
]

const upgrade = (name: string, lines: string) => [
  either(`Upgrade: ${name}, with a request behind`, get('/first', `${lines}\r\n`) + LAST, [FIRST, THEN_LAST]),
  either(
    `Upgrade: ${name}, with a request later`,
    [get('/first', `${lines}\r\n`), 100, LAST],
    [FIRST, THEN_LAST],
  ),
]
const upgrades: readonly RequestForm[] = [
  ...upgrade('h2c', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA'),
  ...upgrade(
    'websocket',
    'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  ),
  ...upgrade('TLS/1.0, websocket', 'Connection: Upgrade\r\nUpgrade: TLS/1.0, websocket'),
  ...upgrade('unknown', 'Connection: Upgrade\r\nUpgrade: unknown'),
  accepted(
    'Upgrade: h2c is not used',
    get('/first', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n') +
      LAST,
    [FIRST, THEN_LAST],
  ),
  accepted(
    'Upgrade: h2c with a body',
    post('Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n', 'abc') + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'abc' },
  ),
]

const pipes: readonly RequestForm[] = [
  ...[2, 3, 20].map(count => {
    const all = Array.from({ length: count }, (_, i) => `/pipe-${i}`)
    const bytes = all.map((target, i) => get(target, i === count - 1 ? 'Connection: close\r\n' : '')).join('')
    return accepted(
      `${count} requests in one packet`,
      bytes,
      all.map(target => `GET ${target}`),
    )
  }),
  accepted(
    'HEAD with a request behind',
    `HEAD /first HTTP/1.1\r\n{H}\r\n${LAST}`,
    ['HEAD /first', THEN_LAST],
    { methods: ['HEAD'] },
  ),
  accepted(
    'POST with a request behind',
    post('Content-Length: 5\r\n', 'GET /') + LAST,
    [FIRST_POST, THEN_LAST],
    { body: 'GET /' },
  ),
  either('a request that gets 429 with a request behind', get('/used-up') + LAST, [THEN_LAST], {
    statuses: [429, 200],
  }),
  either(
    'a request that gets 401 with a request behind',
    `GET /first HTTP/1.1\r\nHost: a.test\r\n\r\n${LAST}`,
    [THEN_LAST],
    { statuses: [401, 200] },
  ),
  either(
    'an upload that gets 429, whose body is a request',
    `POST /used-up HTTP/1.1\r\n{H}Content-Length: {SMUGGLED-LENGTH}\r\n\r\n${SMUGGLED}${LAST}`,
    [THEN_LAST],
    { statuses: [429, 200] },
  ),
  either(
    'an upload in chunks that gets 401, with a request behind',
    `POST /first HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}${LAST}`,
    [THEN_LAST],
    { statuses: [401, 200] },
  ),
  either(
    'an upload that gets an early 413, whose body is a request',
    `POST /413/first HTTP/1.1\r\n{H}Content-Length: {SMUGGLED-LENGTH}\r\n\r\n${SMUGGLED}${LAST}`,
    ['POST /413/first', THEN_LAST],
    { statuses: [413, 200] },
  ),
  either('Connection: close with a request behind', get('/first', 'Connection: close\r\n') + SMUGGLED, [
    FIRST,
  ]),
  either(
    'Connection: close with a request later',
    [get('/first', 'Connection: close\r\n'), 20, SMUGGLED],
    [FIRST],
  ),
  either('an empty line before the request', `\r\n${get('/first', 'Connection: close\r\n')}`, [FIRST]),
  either(
    'ten empty lines before the request',
    `${'\r\n'.repeat(10)}${get('/first', 'Connection: close\r\n')}`,
    [FIRST],
  ),
  either('a FIN behind the request', [get('/first'), FIN], [FIRST]),
  waits('a FIN in the head', ['GET /first HTTP/1.1\r\nHost: a.te', FIN]),
  waits('nothing at all, then a FIN', [5, FIN]),
  waits('half a head', 'GET /first HTTP/1.1\r\nHost: a.te'),
]

const line = (name: string, text: string) =>
  refused(`a header line ${name}`, get('/first', `${text}\r\n`) + SMUGGLED)
const optional = (name: string, text: string) =>
  either(`a header line ${name}`, get('/first', `${text}\r\n`) + LAST, [FIRST, THEN_LAST])
const HEAD = get('/first', 'Connection: close\r\n')
const lines: readonly RequestForm[] = [
  line('without a colon', 'no colon'),
  line('without a name', ': value'),
  line('with a space before the colon', 'X-A : value'),
  line('with a tab before the colon', 'X-A\t: value'),
  line('with a space in the name', 'X A: value'),
  line('with NUL', 'X-A: a\x00b'),
  line('with a bare CR', 'X-A: a\rX-B: c'),
  line('with a bare CR and a head behind', 'X-A: a\r\rGET /smuggled HTTP/1.1\rHost: a.test\r'),
  line('with parentheses in the name', 'X(A): value'),
  line('with 0xff in the name', 'X-\xff: value'),
  refused('a folded line first', `GET /first HTTP/1.1\r\n Folded: yes\r\n{H}\r\n${SMUGGLED}`),
  optional('that is folded', 'X-A: one\r\n two'),
  optional('with 0xff', 'X-A: \xff'),
  optional('with a control character', 'X-A: a\x01b'),
  optional('that is empty', 'X-A:'),
  optional('of 8 kB', `X-A: ${'x'.repeat(8000)}`),
  optional('of 17 kB', `X-A: ${'x'.repeat(17_000)}`),
  either(
    '100 header lines',
    get('/first', Array.from({ length: 100 }, (_, i) => `X-${i}: ${i}\r\n`).join('')) + LAST,
    [FIRST, THEN_LAST],
  ),
  either(
    '1500 header lines',
    get('/first', Array.from({ length: 1500 }, (_, i) => `X-${i}: ${i}\r\n`).join('')) + LAST,
    [FIRST, THEN_LAST],
  ),
  either('bare LF at the end of lines', 'GET /first HTTP/1.1\nHost: a.test\n{K}\n', [FIRST]),
  waits('bare LF before the last line end', `GET /first HTTP/1.1\r\n{H}\n\r\n`, [FIRST]),
  waits('bare CR at the end of lines', 'GET /first HTTP/1.1\rHost: a.test\r\r', []),
  accepted('a head byte by byte', HEAD, [FIRST], { packets: length => Array.from({ length }, (_, i) => i) }),
  ...[1, 2, 3, 4].map(i =>
    accepted(`a packet that ends ${i} bytes before the end of the head`, HEAD, [FIRST], {
      packets: () => [-i],
    }),
  ),
  accepted('a packet that ends behind the request line', HEAD, [FIRST], { packets: () => [21] }),
  accepted(
    'a packet that ends in the middle of the last chunk',
    [post('Transfer-Encoding: chunked\r\nConnection: close\r\n', '3\r\nabc\r\n0\r'), 10, '\n\r', 10, '\n'],
    [FIRST_POST],
    { body: 'abc' },
  ),
]

export const REQUEST_FORMS: readonly RequestForm[] = [
  ...methods,
  ...targets,
  ...versions,
  ...hosts,
  ...lengths,
  ...codings,
  ...chunks,
  ...expectations,
  ...upgrades,
  ...pipes,
  ...lines,
]
