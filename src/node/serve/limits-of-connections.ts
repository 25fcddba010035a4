/** Settings of `node:http` against clients that send or read slowly, or open many connections. docs/serve.md shows them. */
import type { ServerOptions } from 'node:http'

/** The most connections of one process. */
export const MAX_CONNECTIONS = 10_000

export const SERVER_OPTIONS = {
  /** For the head of a request (ms). */
  headersTimeout: 15_000,
  /** For the whole request, with its body (ms). */
  requestTimeout: 300_000,
  /** For the next request on a connection (ms). Longer than proxies keep theirs (60 s of nginx and of AWS), so that they close it first. */
  keepAliveTimeout: 75_000,
  /** How often these times are checked (ms). */
  connectionsCheckingInterval: 5000,
  /** Bytes. A longer head gets a 431. */
  maxHeaderSize: 16_384,
  /** The listener refuses requests without Host, so that what follows them on the connection is not executed. */
  requireHostHeader: false,
} as const satisfies ServerOptions

/** The most headers of a request. Of more, some versions of Node (22.18) drop the last ones, which may tell where the body ends. */
export const MAX_HEADERS = 1000

/** How much longer than the deadlines of the config a connection can pass no byte in either direction (ms). */
export const SILENCE_MS = 60_000
