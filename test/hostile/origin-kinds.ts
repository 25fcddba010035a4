/** Kinds of misbehaving origins. For each, what its own caller may see; other callers must always get their own replies. */
import { echo, reply, type Seen } from './origin.ts'
import { CLOSE, FIN, RESET, type Step } from './steps.ts'

/** `cut`: the connection of the caller ends before its reply is whole. */
export type Outcome = number | 'cut'

export interface OriginKind {
  name: string
  steps(request: Seen): Iterable<Step>
  /** What the caller of the origin may see. */
  outcomes: readonly Outcome[]
  /** Of the attacking request. Default: GET */
  method?: 'HEAD' | 'POST'
  /** More header lines of the attacking request. */
  headers?: string
  /** The body of the attacking request, with its pauses. */
  body?: readonly (string | number)[]
  isEarly?: true
  /** Written to a new connection before any request. */
  greeting?: string
  /** When the victims ask, after the attacker has got its reply (ms). Default: 0, of a new connection, and 5, of a kept one. With other delays, both connections are used with each. */
  delays?: readonly number[]
  /** Reaches a deadline of the gateway. These kinds run at the same time. */
  isSlow?: true
  /** The attacking request holds a unit of a concurrency limit, for which the deadline of idle bodies is. */
  isHeld?: true
  /** What the reply must have, if its status is below 400. */
  has?: RegExp
  /** What the reply must not have. */
  hasNot?: RegExp
  /** What the next request on the same connection of the origin does to it. */
  next?: typeof CLOSE | typeof RESET
  /** What local workerd gets wrong, which no Worker can change. Then no reply to another caller is checked there. */
  platform?: string
}

const SURPLUS_DELAYS = [0, 1, 5, 20, 50]

/** A whole reply that no request has asked for. */
const surplus = ({ token }: Seen) => reply(`surplus of ${token}`, `X-Echo: surplus of ${token}\r\n`)

const chunked = (chunks: string, extra = '') =>
  `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n${extra}\r\n${chunks}`

/** A reply with these lines in its head, and with this body. */
const headed = (lines: string, body = 'body') => `HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`

const bytes =
  (...steps: Step[]) =>
  () =>
    steps

/** Replies without a body: no bytes of the head say that a surplus cannot come. */
const WITHOUT_BODY: Readonly<Record<string, (request: Seen) => string>> = {
  HEAD: request => headed(`Content-Length: ${surplus(request).length}`, ''),
  'HEAD in chunks': () => chunked(''),
  204: () => 'HTTP/1.1 204 No Content\r\n\r\n',
  '204 with a length': request =>
    `HTTP/1.1 204 No Content\r\nContent-Length: ${surplus(request).length}\r\n\r\n`,
  304: request => `HTTP/1.1 304 Not Modified\r\nContent-Length: ${surplus(request).length}\r\n\r\n`,
}

/** What local workerd gets wrong with each of these, by the time of the surplus. It keeps the connection after such a reply. */
const LOCAL_WORKERD: Readonly<Record<number, string>> = {
  0: 'the next caller can get the surplus, if it asks at once: 0 of 10 here, more with slower origins',
  5: 'the next caller gets the surplus: 1 to 5 of 10 at 0 and 1 ms, none later',
  50: 'the next caller gets the surplus: 7 to 10 of 10 at 0 to 20 ms, none at 50 ms',
}

/** workerd does not send a request again if the connection that it used was closed. */
const NOT_REPEATED = 'the next caller gets a 502'

const surplusWithoutBody = Object.entries(WITHOUT_BODY).flatMap(([what, head]) =>
  [undefined, 0, 5, 50].map(
    (after): OriginKind => ({
      name: `a body after ${what}, ${after === undefined ? 'in one packet' : `${after} ms later`}`,
      ...(what.startsWith('HEAD') && { method: 'HEAD' as const }),
      steps: request =>
        after === undefined ? [head(request) + surplus(request)] : [head(request), after, surplus(request)],
      outcomes: [what.startsWith('HEAD') ? 200 : Number.parseInt(what, 10), 502],
      delays: SURPLUS_DELAYS,
      ...(after !== undefined && { platform: LOCAL_WORKERD[after] }),
    }),
  ),
)

const WITH_BODY: Readonly<Record<string, (request: Seen) => string>> = {
  'Content-Length': request => echo(request),
  'a length of 0': () => reply(''),
  'the last chunk': () => chunked('2\r\nok\r\n0\r\n\r\n'),
  trailers: () => chunked('2\r\nok\r\n0\r\nX-Trailer: yes\r\n\r\n'),
  205: () => reply('', '', '205 Reset Content'),
}

/**
 * Once another request is on its way, no gateway can tell a late surplus from the answer to it. So if the surplus is not in one packet with
 * the reply, victims ask after it.
 */
const TIMINGS: readonly [after: number | undefined, delays: readonly number[]][] = [
  [undefined, SURPLUS_DELAYS],
  [0, [20, 50]],
  [5, [50]],
  [300, [400]],
]

const surplusAfterBody = Object.entries(WITH_BODY).flatMap(([what, whole]) =>
  TIMINGS.filter(([after]) => after !== 300 || what === 'Content-Length').map(
    ([after, delays]): OriginKind => ({
      name: `a second reply after ${what}, ${after === undefined ? 'in one packet' : `${after} ms later`}`,
      steps: request =>
        after === undefined ? [whole(request) + surplus(request)] : [whole(request), after, surplus(request)],
      outcomes: [what === '205' ? 205 : 200, 502, 'cut'],
      delays,
    }),
  ),
)

const LONG_BODY = ['x'.repeat(100_000), 20, 'x'.repeat(100_000)]
const early = (name: string, outcomes: readonly Outcome[], ...steps: Step[]): OriginKind => ({
  ...{ name, outcomes, steps: () => steps, method: 'POST', body: LONG_BODY, isEarly: true },
})

/** Writes without an end, with a pause after each part. */
function* endless(first: string, part: string): Iterable<Step> {
  yield first
  for (;;) {
    yield part
    yield 2
  }
}

const lengths = (name: string, lines: string, outcomes: readonly Outcome[]): OriginKind => ({
  name: `Content-Length ${name}`,
  steps: request => [headed(lines, 'body') + surplus(request), CLOSE],
  outcomes,
})

const chunks = (name: string, text: string, outcomes: readonly Outcome[], has?: RegExp): OriginKind => ({
  ...{
    name,
    steps: () => (has ? [chunked(text)] : [chunked(text), 5, CLOSE]),
    outcomes,
    ...(has && { has }),
  },
})

const status = (line: string, outcomes: readonly Outcome[]): OriginKind => ({
  ...{ name: `the status line ${JSON.stringify(line)}`, outcomes },
  steps: () => [`${line}\r\nContent-Length: 2\r\n\r\nok`],
})

const head = (name: string, lines: string, outcomes: readonly Outcome[] = [200, 502]): OriginKind => ({
  ...{ name: `a head with ${name}`, outcomes, steps: () => [headed(`Content-Length: 4\r\n${lines}`)] },
})

export const ORIGIN_KINDS: readonly OriginKind[] = [
  ...surplusWithoutBody,
  ...surplusAfterBody,
  {
    name: 'three replies in one packet',
    steps: request => [echo(request) + surplus(request) + surplus(request)],
    outcomes: [200, 502, 'cut'],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'a surplus of half a reply',
    steps: request => [`${echo(request)}HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nsurplus of`],
    outcomes: [200, 502, 'cut'],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'a reply before the request',
    greeting: reply('greeting', 'X-Echo: greeting\r\n'),
    steps: request => [echo(request)],
    outcomes: [200, 502],
    delays: [50],
  },
  early('413 before the body has arrived', [413], reply('too large', '', '413 Content Too Large')),
  early(
    '413 before the body has arrived, then closes',
    [413],
    reply('too large', 'Connection: close\r\n', '413 Content Too Large'),
    5,
    FIN,
  ),
  early(
    '413 before the body has arrived, then resets',
    [413, 502],
    reply('too large', '', '413 Content Too Large'),
    5,
    RESET,
  ),
  early('200 before the body has arrived', [200], reply('early')),
  early('FIN in the middle of the body of the request', [502], FIN),
  early('reset in the middle of the body of the request', [502], RESET),
  early(
    '100 Continue that was not asked for, then 413',
    [413, 502],
    `HTTP/1.1 100 Continue\r\n\r\n${reply('too large', '', '413 Content Too Large')}`,
  ),
  { name: 'closes without an answer', steps: bytes(CLOSE), outcomes: [502] },
  { name: 'resets without an answer', steps: bytes(RESET), outcomes: [502] },
  { name: 'closes its direction without an answer', steps: bytes(FIN), outcomes: [502] },
  {
    name: 'closes after half the head',
    steps: bytes('HTTP/1.1 200 OK\r\nContent-Le', CLOSE),
    outcomes: [502],
  },
  {
    name: 'resets after half the head',
    steps: bytes('HTTP/1.1 200 OK\r\nContent-Le', 5, RESET),
    outcomes: [502],
  },
  {
    name: 'closes after half the body',
    steps: bytes(headed('Content-Length: 100', 'half'), CLOSE),
    outcomes: ['cut', 502],
  },
  {
    name: 'resets after half the body',
    steps: bytes(headed('Content-Length: 100', 'half'), 5, RESET),
    outcomes: ['cut', 502],
  },
  chunks('closes in the middle of a chunk', '10\r\nhalf', ['cut', 502]),
  chunks('closes before the last chunk', '4\r\nbody\r\n', ['cut', 502]),
  chunks('closes in the middle of the trailers', '4\r\nbody\r\n0\r\nX-Trailer', ['cut', 502, 200]),
  chunks('a chunk that is longer than its size', '2\r\nlonger\r\n0\r\n\r\n', ['cut', 502]),
  chunks('a chunk that is shorter than its size', 'ff\r\nshort\r\n0\r\n\r\n', ['cut', 502]),
  chunks('a chunk size of 2^64 and more', '10000000000000004\r\nbody\r\n0\r\n\r\n', ['cut', 502]),
  chunks('a chunk size of 2^63 - 1', '7fffffffffffffff\r\nbody', ['cut', 502]),
  chunks('a chunk size with a sign', '-4\r\nbody\r\n0\r\n\r\n', ['cut', 502]),
  chunks('a chunk size with 0x', '0x4\r\nbody\r\n0\r\n\r\n', ['cut', 502]),
  chunks('an empty chunk size', '\r\nbody\r\n0\r\n\r\n', ['cut', 502]),
  chunks('chunk extensions', '4;a=b;c="d"\r\nbody\r\n0;e\r\n\r\n', [200, 502, 'cut'], /body/),
  chunks('chunks with bare line feeds', '4\nbody\n0\n\n', ['cut', 502, 200]),
  chunks(
    'trailers that name a consumer',
    '4\r\nbody\r\n0\r\nX-Consumer-Id: evil\r\nX-Echo: evil\r\n\r\n',
    [200],
    /body/,
  ),
  lengths('negative', 'Content-Length: -1', [502]),
  lengths('with a plus sign', 'Content-Length: +4', [502]),
  lengths('in hexadecimal', 'Content-Length: 0x4', [502]),
  lengths('twice, equal', 'Content-Length: 4\r\nContent-Length: 4', [200, 502, 'cut']),
  lengths('twice, different', 'Content-Length: 4\r\nContent-Length: 5', [502]),
  lengths('in a list, equal', 'Content-Length: 4, 4', [200, 502, 'cut']),
  lengths('in a list, different', 'Content-Length: 4, 5', [502]),
  lengths('that is not a number', 'Content-Length: four', [502]),
  lengths('empty', 'Content-Length: ', [200, 502, 'cut']),
  lengths('with a space in it', 'Content-Length: 4 4', [502]),
  lengths('of 2^64 and more', 'Content-Length: 18446744073709551620', [502, 'cut']),
  {
    name: 'Content-Length with Transfer-Encoding',
    steps: request => [chunked('4\r\nbody\r\n0\r\n\r\n', 'Content-Length: 4\r\n') + surplus(request)],
    outcomes: [200, 502, 'cut'],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'Transfer-Encoding in HTTP/1.0',
    steps: bytes('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n', 5, CLOSE),
    outcomes: [200, 502, 'cut'],
  },
  ...['gzip, chunked', 'identity', 'chunked, chunked', 'gzip', 'xchunked', 'chunked, identity'].map(
    (coding): OriginKind => ({
      name: `Transfer-Encoding: ${coding}`,
      steps: () => [headed(`Transfer-Encoding: ${coding}`, '4\r\nbody\r\n0\r\n\r\n'), FIN],
      outcomes: [200, 502, 'cut'],
    }),
  ),
  { name: 'a reply of HTTP/0.9', steps: bytes('<html>body</html>', CLOSE), outcomes: [502] },
  {
    name: 'a reply of HTTP/1.0 until it closes',
    steps: bytes('HTTP/1.0 200 OK\r\n\r\nbody', FIN),
    outcomes: [200],
    has: /body/,
  },
  {
    name: 'a reply of HTTP/1.0 that keeps its connection',
    steps: bytes('HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody'),
    outcomes: [200],
    has: /body/,
  },
  {
    name: 'a reply of HTTP/1.0 that does not close, and a late surplus',
    steps: request => ['HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody', 5, surplus(request)],
    outcomes: [200],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'SETTINGS of HTTP/2',
    steps: bytes('\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64', 5, CLOSE),
    outcomes: [502],
  },
  ...['102 Processing', '103 Early Hints\r\nLink: </a.css>; rel=preload'].map(
    (line): OriginKind => ({
      name: `${line.slice(0, 3)} before the reply`,
      steps: request => [`HTTP/1.1 ${line}\r\n\r\n`, 2, echo(request)],
      outcomes: [200],
      has: /echo/,
    }),
  ),
  {
    name: '100 before the reply',
    steps: request => ['HTTP/1.1 100 Continue\r\n\r\n', 2, echo(request)],
    outcomes: [200, 502],
  },
  {
    name: 'twenty times 103 before the reply',
    steps: request => ['HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(20) + echo(request)],
    outcomes: [200, 502],
  },
  {
    name: '103 without an end',
    steps: () => endless('', 'HTTP/1.1 103 Early Hints\r\n\r\n'),
    outcomes: [502, 504],
    isSlow: true,
  },
  {
    name: '100 without an end',
    steps: () => endless('', 'HTTP/1.1 100 Continue\r\n\r\n'),
    outcomes: [502, 504],
    isSlow: true,
  },
  {
    name: '101 that was not asked for',
    steps: request => [
      `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n${surplus(request)}`,
    ],
    outcomes: [502],
    delays: SURPLUS_DELAYS,
  },
  {
    name: '101 without Upgrade',
    steps: request => [`HTTP/1.1 101 Switching Protocols\r\n\r\n${echo(request)}`],
    outcomes: [502, 200],
  },
  {
    name: '199 before the reply',
    steps: request => ['HTTP/1.1 199 Odd\r\n\r\n', 2, echo(request)],
    outcomes: [200, 502],
  },
  status('HTTP/1.1 000 OK', [502]),
  status('HTTP/1.1 099 OK', [502]),
  status('HTTP/1.1 99 OK', [502]),
  status('HTTP/1.1 600 OK', [502]),
  status('HTTP/1.1 999 OK', [502]),
  status('HTTP/1.1 1000 OK', [502]),
  status('HTTP/1.1 2 OK', [502]),
  status('HTTP/1.1 -200 OK', [502]),
  status('HTTP/1.1', [502]),
  status('HTTP/1.1 200', [200, 502]),
  status('HTTP/1.1 200 It is \xfc\x62er', [200, 502]),
  status('HTTP/2 200 OK', [200, 502]),
  status('http/1.1 200 OK', [200, 502]),
  status('ICY 200 OK', [502]),
  head('a line without a colon', 'no colon'),
  head('an empty name', ': value'),
  head('a folded line', 'X-Folded: one\r\n two'),
  head('a space before a colon', 'X-Space : value'),
  head('a space before the colon of Content-Length', 'Content-Length : 9'),
  head('NUL in a value', 'X-Nul: a\x00b'),
  head('a control character in a value', 'X-Control: a\x01b'),
  head('a bare CR in a value', 'X-Cr: a\rX-Split: evil'),
  head('a bare LF in a value', 'X-Lf: a\nX-Split: yes'),
  {
    name: 'bare LF at the end of lines',
    steps: bytes('HTTP/1.1 200 OK\nContent-Length: 4\n\nbody'),
    outcomes: [200, 502, 504],
    isSlow: true,
  },
  head('a value of 17 kB', `X-Long: ${'x'.repeat(17_000)}`),
  head('a value of 100 kB', `X-Long: ${'x'.repeat(100_000)}`),
  head('a thousand lines', Array.from({ length: 1000 }, (_, i) => `X-${i}: ${i}`).join('\r\n')),
  {
    name: 'a head without an end',
    steps: () => endless('HTTP/1.1 200 OK\r\n', `X-More: ${'x'.repeat(90)}\r\n`),
    outcomes: [502, 504],
    isSlow: true,
  },
  {
    name: 'a name without an end',
    steps: () => endless('HTTP/1.1 200 OK\r\nX-', 'x'.repeat(100)),
    outcomes: [502, 504],
    isSlow: true,
  },
  ...[5, 50].map(
    (after): OriginKind => ({
      name: `Connection: close, but open, and a surplus ${after} ms later`,
      steps: request => [echo(request, 'Connection: close\r\n'), after, surplus(request)],
      outcomes: [200],
      delays: SURPLUS_DELAYS,
    }),
  ),
  {
    name: 'Connection: close, but open',
    steps: request => [echo(request, 'Connection: close\r\n')],
    outcomes: [200],
  },
  {
    name: 'Keep-Alive: timeout=0, then closes',
    platform: NOT_REPEATED,
    steps: request => [echo(request, 'Keep-Alive: timeout=0\r\n'), 1, FIN],
    outcomes: [200],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'Keep-Alive: timeout=1, then closes at once',
    platform: NOT_REPEATED,
    steps: request => [echo(request, 'Keep-Alive: timeout=1\r\n'), 1, FIN],
    outcomes: [200],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'closes idle connections after 20 ms',
    platform: NOT_REPEATED,
    steps: request => [echo(request), 20, FIN],
    outcomes: [200],
    delays: [0, 5, 18, 19, 20, 21, 50],
  },
  {
    name: 'closes when the next request arrives',
    platform: NOT_REPEATED,
    steps: request => [echo(request)],
    next: CLOSE,
    outcomes: [200],
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'resets when the next request arrives',
    platform: NOT_REPEATED,
    steps: request => [echo(request)],
    next: RESET,
    outcomes: [200],
    delays: SURPLUS_DELAYS,
  },
  { name: 'a slow first byte', steps: request => [200, echo(request)], outcomes: [200], has: /echo/ },
  {
    name: 'one byte after the other',
    steps: request => [...echo(request)].flatMap(byte => [byte, 0]),
    outcomes: [200],
    has: /echo/,
  },
  { name: 'no answer', steps: () => [], outcomes: [504], isSlow: true },
  {
    name: 'a body that falls silent',
    isHeld: true,
    steps: bytes(headed('Content-Length: 100', 'half')),
    outcomes: ['cut'],
    isSlow: true,
  },
  {
    name: 'chunks that fall silent',
    isHeld: true,
    steps: bytes(chunked('4\r\nhalf\r\n')),
    outcomes: ['cut'],
    isSlow: true,
  },
  {
    name: 'a chunk that falls silent',
    isHeld: true,
    steps: bytes(chunked('10\r\nhalf')),
    outcomes: ['cut'],
    isSlow: true,
  },
  {
    name: '408 on an idle connection after 20 ms, then closes',
    steps: request => [
      echo(request),
      20,
      reply('idle', 'X-Echo: 408\r\nConnection: close\r\n', '408 Request Timeout'),
      FIN,
    ],
    outcomes: [200],
    delays: [50, 80],
  },
  {
    name: '200 on an idle connection after 20 ms',
    steps: request => [echo(request), 20, surplus(request)],
    outcomes: [200],
    delays: [50, 80],
  },
  {
    name: 'bytes of TLS',
    steps: bytes('\x15\x03\x01\x00\x02\x02\x46', CLOSE),
    outcomes: [502],
  },
  {
    name: 'a body until it closes its direction',
    steps: bytes('HTTP/1.1 200 OK\r\n\r\nbody', FIN),
    outcomes: [200],
    has: /body/,
  },
  {
    name: 'a whole reply, then closes its direction',
    steps: request => [echo(request), FIN],
    outcomes: [200],
    has: /echo/,
    delays: SURPLUS_DELAYS,
  },
  {
    name: 'two cookies',
    steps: request => [echo(request, 'Set-Cookie: a=1\r\nSet-Cookie: b=2; Path=/\r\n')],
    outcomes: [200],
    has: /set-cookie: a=1\r\n[\s\S]*set-cookie: b=2; Path=\/\r\n/i,
  },
  {
    name: 'a Content-Encoding that is not so',
    // For other clients, the local edge decodes the reply.
    headers: 'Accept-Encoding: gzip\r\n',
    steps: request => [echo(request, 'Content-Encoding: gzip\r\nContent-Type: application/octet-stream\r\n')],
    outcomes: [200],
    has: /echo/,
  },
  {
    name: '200 with Upgrade',
    steps: request => [echo(request, 'Connection: Upgrade\r\nUpgrade: h2c\r\n')],
    outcomes: [200],
    has: /echo/,
    hasNot: /^upgrade:/im,
  },
  {
    name: '204 with chunks',
    steps: () => ['HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n'],
    outcomes: [204, 502],
    delays: SURPLUS_DELAYS,
  },
  {
    name: '304 with a length and no body',
    steps: bytes('HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n'),
    outcomes: [304],
  },
  {
    name: 'HEAD with a length and no body',
    method: 'HEAD',
    steps: request => [echo(request)],
    outcomes: [200],
  },
  {
    name: 'headers for the gateway and for one connection',
    steps: request => [echo(request, 'Sluice-Degraded: evil\r\nConnection: X-Secret\r\nX-Secret: evil\r\n')],
    outcomes: [200],
    hasNot: /evil/,
  },
]
