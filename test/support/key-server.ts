/** A server that publishes the keys of an issuer, or fails in various ways, and functions that sign tokens with these keys. */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'

export interface KeyServer {
  url: string
  /** Number of requests. */
  fetches: number
  /** Writes the answer. By default, a key set. */
  answer: (response: ServerResponse) => void
  publish(...keys: JWK[]): void
  close(): Promise<void>
}

export async function startKeyServer(...keys: JWK[]): Promise<KeyServer> {
  const http = createServer((_, response) => {
    server.fetches += 1
    server.answer(response)
  })
  await new Promise<void>(resolve => http.listen(0, '127.0.0.1', resolve))
  const server: KeyServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/jwks.json`,
    fetches: 0,
    answer: () => {},
    publish(...keys) {
      server.answer = response =>
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys }))
    },
    async close() {
      if (!http.listening) return
      const closed = new Promise(resolve => http.close(resolve))
      http.closeAllConnections()
      await closed
    },
  }
  server.publish(...keys)
  return server
}

export interface SigningKey {
  kid: string
  alg: string
  /** The published form. */
  jwk: JWK
  publicKey: CryptoKey
  privateKey: CryptoKey
}

export async function signingKey(alg: string, kid: string): Promise<SigningKey> {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }
  return { kid, alg, jwk, publicKey, privateKey }
}

/** Signs any claims, even invalid ones. */
export async function sign(
  claims: Record<string, unknown>,
  key: Pick<SigningKey, 'kid' | 'alg'> & { privateKey: CryptoKey | Uint8Array },
  header: Record<string, unknown> = {},
): Promise<string> {
  const protectedHeader = JSON.parse(JSON.stringify({ alg: key.alg, kid: key.kid, ...header }))
  const crit = Object.fromEntries([header.crit ?? []].flat().map(name => [name, true]))
  return new SignJWT(claims).setProtectedHeader(protectedHeader).sign(key.privateKey, { crit })
}
