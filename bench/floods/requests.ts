/** The requests of a flood: as texts for raw-connection.ts, or as headers. */
import { randomBytes } from 'node:crypto'
import { mintApiKey, mintKeyBody, randomBase62 } from '../../src/credentials/api-key.ts'

/** The id of the Worker's secret for keys. */
export const KEY_SECRET_ID = 'fl'

export interface Caller {
  /** The name by which the origin counts. Absent: the origin does not count the request. */
  name?: string
  address: string
  apiKey?: string
}

/** `signed-key`: an API key with a wrong signature. */
export type GuessedKey = 'api-key' | 'signed-key' | 'opaque-key'

export interface FloodRequests {
  path: string
  /** The requests come from these callers in turn. */
  callers: readonly Caller[]
  /** Each request has a different valid-looking key that the store does not know, instead of the caller's key. */
  guesses?: GuessedKey
  /** The requests come from these addresses in turn, instead of the callers' addresses. */
  addresses?: readonly string[]
}

export function requestTexts(flood: FloodRequests, count: number): string[] {
  const { path, callers, guesses, addresses } = flood
  if (!guesses && !addresses) {
    const texts = callers.map(caller => requestText(path, caller))
    return Array.from({ length: count }, (_, i) => texts[i % texts.length]!)
  }
  return Array.from({ length: count }, (_, i) => requestText(path, callerOf(flood, i)))
}

/** The caller of the request with the number `i`, with the key and the address that it sends. */
export function callerOf({ callers, guesses, addresses }: FloodRequests, i: number): Caller {
  const caller = callers[i % callers.length]!
  if (!guesses && !addresses) return caller
  return {
    ...caller,
    ...(guesses && { apiKey: guessed(guesses, i) }),
    ...(addresses && { address: addresses[i % addresses.length]! }),
  }
}

function guessed(kind: GuessedKey, i: number): string {
  if (kind === 'opaque-key') return randomBytes(24).toString('base64url')
  if (kind === 'api-key') return mintApiKey(`guessed-${i}`)
  return `${mintKeyBody(`guessed-${i}`, 'slk_')}l5Bw${KEY_SECRET_ID}${randomBase62(22)}`
}

export function requestText(path: string, caller: Caller): string {
  const lines = [
    `GET ${path} HTTP/1.1`,
    'Host: gateway.example',
    ...headersOf(caller).map(([name, value]) => `${name}: ${value}`),
  ]
  return `${lines.join('\r\n')}\r\n\r\n`
}

export function headersOf({ name, address, apiKey }: Caller): [name: string, value: string][] {
  return [
    ['CF-Connecting-IP', address],
    ...(apiKey === undefined ? [] : [['X-API-Key', apiKey] as [string, string]]),
    ...(name === undefined ? [] : [['X-Caller', name] as [string, string]]),
  ]
}
