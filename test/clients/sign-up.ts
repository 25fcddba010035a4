/**
 * A service that signs a user up, shows its usage, raises its limit for a day and revokes its key. It has its types from the OpenAPI
 * document alone. Prints the replies.
 */
import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { paths } from './dist/api.d.ts'

const { GATEWAY = '', TOKEN = '' } = process.env

const client = createClient<paths>({
  baseUrl: `${GATEWAY}/_sluice/v1`,
  headers: { Authorization: `Bearer ${TOKEN}` },
})

const signUp = {
  params: { header: { 'Idempotency-Key': 'signup-17' } },
  body: { consumer: 'acme', label: 'first', expiresAt: '90d' },
}
const { data: created, error } = await client.POST('/keys', signUp)
assert(created, String(error?.detail))

const { error: repeated } = await client.POST('/keys', signUp)

const { data: usage } = await client.GET('/usage', { headers: { Authorization: `Bearer ${created.key}` } })

const { data: raised } = await client.PUT('/consumers/{consumer}/overrides/{rule}', {
  params: { path: { consumer: created.consumer, rule: 'consumer-minute' } },
  body: { limit: 600, until: '1d' },
})

const { data: listed } = await client.GET('/keys', { params: { query: { consumer: 'acme', limit: 1 } } })

const [consumer = '', digits = ''] = created.id.split('/')
const { data: revoked } = await client.DELETE('/keys/{consumer}/{digits}', {
  params: { path: { consumer, digits } },
})

const { error: forbidden } = await client.PATCH('/consumers/{consumer}', {
  params: { path: { consumer } },
  body: { plan: 'pro' },
})

/** The compiler refuses what the API would refuse. */
export async function mistakes(): Promise<void> {
  // @ts-expect-error: the consumer is missing
  await client.POST('/keys', { body: { label: 'first' } })
  // @ts-expect-error: no such mode
  await client.POST('/keys', { body: { consumer: 'acme', mode: 'staging' } })
  // @ts-expect-error: no such path
  await client.POST('/key', { body: { consumer: 'acme' } })
  // @ts-expect-error: the name of the limit is missing
  await client.POST('/limits/{name}', { body: {} })
  const { data } = await client.GET('/consumers/{consumer}', { params: { path: { consumer } } })
  // @ts-expect-error: a consumer may have no plan
  data?.plan.length
  // @ts-expect-error: a secret is shown once
  data?.keys[0]?.key
}

console.log(JSON.stringify({ created, repeated, usage, raised, listed, revoked, forbidden }))
