/** The requests of a flood, as texts for raw-connection.ts. */
import { randomBytes } from 'node:crypto'
import { mintApiKey } from '../../src/credentials/api-key.ts'

export interface Caller {
  /** As the origin counts it. Absent: the request is in no count. */
  name?: string
  address: string
  apiKey?: string
}

export interface FloodRequests {
  path: string
  /** They take turns. */
  callers: readonly Caller[]
  /** In the place of the callers' own keys: each request with another key, of the right form, that the store does not know. */
  guesses?: 'api-key' | 'opaque-key'
  /** Each request from another address: in turn, in the place of the callers' own. */
  addresses?: readonly string[]
}

export function requestTexts(flood: FloodRequests, count: number): string[] {
  const { path, callers, guesses, addresses } = flood
  if (!guesses && !addresses) {
    const texts = callers.map(caller => requestText(path, caller))
    return Array.from({ length: count }, (_, i) => texts[i % texts.length]!)
  }
  return Array.from({ length: count }, (_, i) =>
    requestText(path, {
      ...callers[i % callers.length]!,
      ...(guesses && { apiKey: guessed(guesses, i) }),
      ...(addresses && { address: addresses[i % addresses.length]! }),
    }),
  )
}

function guessed(kind: 'api-key' | 'opaque-key', i: number): string {
  return kind === 'api-key' ? mintApiKey(`guessed-${i}`) : randomBytes(24).toString('base64url')
}

export function requestText(path: string, { name, address, apiKey }: Caller): string {
  const lines = [
    `GET ${path} HTTP/1.1`,
    'Host: gateway.example',
    `CF-Connecting-IP: ${address}`,
    ...(apiKey === undefined ? [] : [`X-API-Key: ${apiKey}`]),
    ...(name === undefined ? [] : [`X-Caller: ${name}`]),
  ]
  return `${lines.join('\r\n')}\r\n\r\n`
}
