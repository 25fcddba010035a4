/**
 * Servers that `fetch` reaches without a connection. In suites of the gateway, half of the CPU time went into HTTP between two ends of one
 * process. With `npm run test:all`, every request is sent over HTTP.
 */
import { setImmediate as arrival } from 'node:timers/promises'
import { SELECTION } from '../selection.ts'

/**
 * Answers a request that has arrived.
 * @param path with the query
 * @returns undefined if the request has to be sent over HTTP
 */
export type LocalServer = (path: string, init: RequestInit) => Promise<Response> | undefined

/** By the URL without a path. */
const servers = new Map<string, LocalServer>()

const fetchByHttp = globalThis.fetch

globalThis.fetch = (input, init = {}) => {
  const [url = ''] = (typeof input === 'string' && /^http:\/\/[^/?]*/.exec(input)) || []
  const server = servers.get(url)
  return server ? reach(server, input as string, url, init) : fetchByHttp(input, init)
}

/** @param url the URL of a server that listens, and also answers requests that are sent over HTTP */
export function serveInProcess(url: string, server: LocalServer): void {
  if (SELECTION === 'quick') servers.set(url, server)
}

export function stopServingInProcess(url: string): void {
  servers.delete(url)
}

async function reach(server: LocalServer, target: string, url: string, init: RequestInit): Promise<Response> {
  const { signal } = init
  // A request never arrives before the code that has sent it goes on.
  await arrival()
  signal?.throwIfAborted()
  const reply = server(target.slice(url.length) || '/', init)
  if (!reply) return await fetchByHttp(target, init)
  return await (signal ? untilAborted(reply, signal) : reply)
}

function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    const end = () => signal.removeEventListener('abort', abort)
    work.then(resolve, reject).then(end, end)
  })
}
