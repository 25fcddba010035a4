/**
 * Reads real traffic: 10,000 requests of an Apache access log, which is not part of the repository. Without the file, a log of the
 * same shape is generated from a seed.
 */
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { randomFrom } from './random.ts'

const LOG = fileURLToPath(new URL('../../../shared/data/apache_access.log.gz', import.meta.url))

export interface LoggedRequest {
  address: string
  /** µs since the epoch. */
  at: number
  method: string
  path: string
}

export interface AccessLog {
  /** For the title of the test. */
  title: string
  requests: LoggedRequest[]
}

export function readAccessLog(): AccessLog {
  if (!existsSync(LOG))
    return { title: 'a made-up log (the real one is not beside this clone)', requests: madeUpLog() }
  return { title: 'a real log', requests: requestsIn(LOG) }
}

/** The requests in a log. @param file in the common log format, as text or gzip */
export function requestsIn(file: string): LoggedRequest[] {
  const bytes = readFileSync(file)
  const isGzip = bytes[0] === 0x1f && bytes[1] === 0x8b
  const text = (isGzip ? gunzipSync(bytes) : bytes).toString('utf8')
  return text.trimEnd().split('\n').map(parseLine)
}

/** Apache's combined format: `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" 200 …` */
function parseLine(line: string): LoggedRequest {
  const match = /^(\S+) \S+ \S+ \[(\d+)\/(\w+)\/(\d+):([\d:]+) ([+-]\d{4})\] "(\S+) (\S+)/.exec(line)
  if (!match) throw new Error(`not a line of an access log: ${line.slice(0, 80)}`)
  const [, address, day, month, year, time, zone, method, path] = match
  return {
    address: address!,
    at: Date.parse(`${day} ${month} ${year} ${time} ${zone}`) * 1e3,
    method: method!,
    path: path!,
  }
}

/** Generates 10,000 requests in 31 hours from about 1,430 addresses, a few of which are crawlers that send bursts. */
function madeUpLog(): LoggedRequest[] {
  const random = randomFrom(2015)
  const start = Date.UTC(2015, 4, 17, 10) * 1e3
  const requests: LoggedRequest[] = []
  let at = start
  while (requests.length < 10_000) {
    at += random.int(0, 68) * 1e6
    const isCrawler = random.chance(0.1)
    const host = isCrawler ? random.int(1, 12) : random.int(13, 1753)
    const address = `198.${18 + (host >> 16)}.${(host >> 8) & 255}.${host & 255}`
    const count = isCrawler ? random.int(1, 25) : random.int(1, 3)
    for (let i = 0; i < count && requests.length < 10_000; i++) {
      requests.push({
        address,
        at: at + random.int(0, 2) * 1e6,
        method: 'GET',
        path: `/page/${random.int(1, 500)}`,
      })
    }
  }
  return requests
}
