/**
 * Operations whose commands fail. Each can be repeated, and then everything is as if it had not failed; only the audit trail can have an entry for
 * each attempt.
 */
import { beforeEach, vi } from 'vitest'
import { textsIn } from '../../src/node/redis-store/admin-connection.ts'
import { type AdminStore, wholeStoreOn, withActor } from '../../src/ops/admin-store.ts'
import { blockConsumer, setPlan, unblockConsumer } from '../../src/ops/consumers.ts'
import { revokeKey, setKeyPlan } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { importKey, listKeys } from '../../src/ops/keys.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { killLimits } from '../../src/ops/switches.ts'
import { write } from '../../src/ops/write.ts'
import { createClaim } from '../../src/set-ups/api/idempotency.ts'
import { sha256 } from '../../src/sha256.ts'
import type { Command, Reply } from '../../src/store/admin-connection.ts'
import { credentialKey } from '../../src/store/keys.ts'
import { OPS } from '../support/audit.ts'
import type { RedisEngine } from '../support/engines.ts'
import { type FailingCall, itCanBeSentAgain } from '../support/failing-calls.ts'

const LATER = new Date(Date.UTC(2100, 5, 1, 12))
const HOUR = 'sluice:{stats}:callers:2100060111'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: LATER })
  return () => vi.useRealTimers()
})

/** The store for administration over the connection of an engine. */
function storeOn(engine: RedisEngine): AdminStore {
  const run = async <T extends Reply>(...command: Command) =>
    textsIn(await engine.send(command.map(String))) as T
  const unused = () => {
    throw new Error('No operation of this test needs it.')
  }
  const connection = {
    ...{ run, transact: unused, nextStepFor: unused },
    runEach: <T extends Reply>(commands: readonly Command[]) =>
      Promise.all(commands.map(each => run<T>(...each))),
    decisions: { isCluster: false } as AdminStore['decisions'],
  }
  const { advice: _, ...store } = wholeStoreOn(connection, {})
  return withActor(store, OPS)
}

const claimOf = (store: AdminStore) =>
  createClaim('a', store, { ...{ tokenId: 'a', requestId: 'b' }, onCluster: { firstRequest: '' } })

const OPAQUE = 'partner-key-number-1'

/** @param change is made to a consumer with two opaque keys, a plan, and refusals in the statistics */
const change = (change: (store: AdminStore) => Promise<unknown>): FailingCall => ({
  ...{ grows: 'sluice:{audit}', isLasting: key => /:(names|digests)$/.test(key) },
  async prepare(engine) {
    const store = storeOn(engine)
    await setPlan(store, 'acme', 'pro')
    await importKey(store, { key: OPAQUE }, { consumer: 'acme' })
    await importKey(
      store,
      { key: 'partner-key-number-2' },
      { consumer: 'acme', expiresAt: new Date(Date.now() + 60e3) },
    )
    await store.run(
      'HSET',
      HOUR,
      '#',
      2,
      'limited window',
      'acme 3 0 1 x',
      'limited log',
      'acme 3 0 1 x globex 1 0 1 x',
    )
    await store.run('EXPIRE', HOUR, 600)
    await store.run('DEL', 'sluice:{audit}')
  },
  call: engine => change(storeOn(engine)),
})

itCanBeSentAgain({
  'a plan of a consumer': change(store => setPlan(store, 'acme', 'free')),
  'a plan of a new consumer': change(store => setPlan(store, 'globex', 'free')),
  'the end of the only setting': change(store => setPlan(store, 'acme', undefined)),
  'a block': change(store => blockConsumer(store, 'acme', { reason: 'x' })),
  'the end of a block': change(async store => {
    await unblockConsumer(store, 'acme')
  }),
  'a switch': change(store => killLimits(store, { mode: 'shadow' } as never)),
  'an imported key': change(store => importKey(store, { key: 'partner-key-number-3' }, { consumer: 'acme' })),
  'a plan of a key': change(async store => setKeyPlan(store, await findKey(store, OPAQUE), 'free')),
  'the revocation of a key': change(async store => {
    await revokeKey(store, { consumer: 'acme', digest: sha256(OPAQUE) })
    await listKeys(store)
  }),
  'the removal of a consumer': change(store => removeConsumer(store, 'acme', [])),
  'a list that drops what has ended': change(async store => {
    await store.run('DEL', store.at(credentialKey('acme', sha256(OPAQUE))))
    await listKeys(store)
  }),
  'a claim of an Idempotency-Key': change(store => claimOf(store).claim('key-1')),
  'what is created with a claim': change(async store => {
    const key = store.at('sluice:{idem:0}')
    await store.run('SET', key, 'pending', 'EX', 600, 'NX')
    await write(store, {
      ...{ keys: ['sluice:{c:acme}:x'], commands: [['SET', 'sluice:{c:acme}:x', 'new']] },
      claim: { key, text: 'pending', done: 'key-1' },
      entry: { action: 'keys.create', target: 'key-1' },
    })
  }),
})
