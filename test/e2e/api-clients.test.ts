/** Independent clients that know the API from docs/openapi.json alone, against a built Worker in workerd. */
import { createHash } from 'node:crypto'
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import type { Scope } from '../../src/scopes.ts'
import { runClient, withoutPerlClient, withoutTypescriptClient } from '../support/api-clients.ts'
import { ROOT } from '../support/pages.ts'
import { useStack } from '../support/stack.ts'

const context = useStack('whole-api.config.ts')

async function tokenWith(...scopes: Scope[]): Promise<string> {
  const store = createAdminStore({ ...context.stack.rest, keyLocking: false })
  return (await createToken(store, { name: 'client', scopes })).token
}

const WITHOUT_TYPESCRIPT_CLIENT = withoutTypescriptClient()
const WITHOUT_PERL_CLIENT = withoutPerlClient()

describe.skipIf(WITHOUT_TYPESCRIPT_CLIENT)(
  `openapi-typescript and openapi-fetch${WITHOUT_TYPESCRIPT_CLIENT}`,
  () => {
    it('compile a backend that signs a user up, raises its limit and revokes its key, and run it', async () => {
      const TOKEN = await tokenWith('keys:write', 'overrides:write')
      await runClient('node_modules/.bin/openapi-typescript', [
        join(ROOT, 'docs/openapi.json'),
        '--output',
        'dist/api.d.ts',
      ])
      await runClient('node_modules/.bin/tsc', [])
      const printed = await runClient(process.execPath, ['sign-up.ts'], { GATEWAY: context.stack.url, TOKEN })
      const { created, ...replies } = JSON.parse(printed)
      expect(created).toMatchObject({
        consumer: 'acme',
        label: 'first',
        key: expect.stringMatching(/^slk_acme_/),
      })
      expect(replies).toMatchObject({
        repeated: { status: 409, id: created.id },
        usage: { consumer: 'acme', rules: expect.arrayContaining([expect.objectContaining({ limit: 120 })]) },
        raised: { rule: 'consumer-minute', limit: 600, status: 'applies' },
        listed: { items: [{ id: created.id }] },
        revoked: { id: created.id, revoked: true },
        forbidden: { status: 403, scope: 'consumers:write' },
      })
    })
  },
)

/** A reply, and what the client finds wrong with it according to the document. */
interface PerlReply {
  status: number
  mistakes: string[]
  mistakes_in_empty: number
}

describe.skipIf(WITHOUT_PERL_CLIENT)(`OpenAPI::Client of Perl${WITHOUT_PERL_CLIENT}`, () => {
  /** A document of OpenAPI 3.1 is checked against this schema, which the client gets from the internet unless it is in its cache. */
  const SCHEMA = 'https://spec.openapis.org/oas/3.1/schema/2021-05-20'
  let cache: string

  beforeAll(() => {
    cache = mkdtempSync(join(tmpdir(), 'sluice-perl-'))
    const schema = 'test/clients/node_modules/@seriousme/openapi-schema-validator/schemas/v3.1/schema.json'
    copyFileSync(join(ROOT, schema), join(cache, createHash('md5').update(SCHEMA).digest('hex')))
  })
  afterAll(() => rmSync(cache, { recursive: true, force: true }))

  it('creates a key, blocks and unblocks its owner, and decides under a limit', async () => {
    const printed = await runClient('perl', ['support.pl', join(ROOT, 'docs/openapi.json')], {
      GATEWAY: context.stack.url,
      TOKEN: await tokenWith('keys:write', 'limits:use:mails'),
      SUPPORT_TOKEN: await tokenWith('consumers:block'),
      JSON_VALIDATOR_CACHE_PATH: cache,
      // Its validator follows references in the order of Perl's hashes, and in one order of twelve it loses one.
      ...{ PERL_HASH_SEED: '0', PERL_PERTURB_KEYS: '0' },
    })
    const { mistaken, ...replies } = JSON.parse(printed)
    for (const [name, { status, mistakes, mistakes_in_empty }] of Object.entries<PerlReply>(replies)) {
      // It does not follow the references of problems to their schema.
      const checks = status < 400
      expect([name, mistakes, mistakes_in_empty > 0]).toEqual([name, [], checks])
    }
    expect(replies).toMatchObject({
      created: { status: 201, body: { consumer: 'globex' } },
      listed: { status: 200, body: { items: [{ id: replies.created.body.id }] } },
      blocked: { status: 200, body: { reason: 'unpaid' } },
      shown: { status: 200, body: { plan: null, blockedUntil: expect.any(String) } },
      unblocked: { status: 200 },
      decided: { status: 200, body: { allowed: true, receipt: { limit: 'mails' } } },
      forbidden: { status: 403, body: { scope: 'keys:write' } },
    })
    expect(mistaken).toMatchObject({ status: 400, is_sent: false })
  })
})
