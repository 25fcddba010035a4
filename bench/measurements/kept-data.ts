/** Measures what Redis keeps beside counters of limits: statistics, refused callers, and the audit trail. */
import { withCallers } from '../../src/metrics/add-callers.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import type { Batch } from '../../src/metrics/counters.ts'
import { createAdminStore, withActor } from '../../src/ops/admin-store.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { createKey } from '../../src/ops/keys.ts'
import { AUDIT_KEY, callersKey, statsKey } from '../../src/store/keys.ts'
import type { StoreCall } from '../../src/store/store.ts'
import { bytesOf } from '../redis-statistics.ts'
import { bytesRow, type Findings, type Row } from '../report.ts'
import type { TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const DAY_MS = 86400e3
const MINUTE_MS = 60e3
/** Any: the time is an argument of the scripts. */
const DAY = Date.UTC(2026, 0, 1)
const COUNTERS = 20
/** What a sketch has room for. */
const CALLERS = 20
const CONSUMERS = 100

export async function keptData(bed: TestBed): Promise<Findings> {
  return {
    rows: [...(await statistics(bed)), await refusedCallers(bed), await auditTrail(bed)],
    notes: [
      `Kept data: MEMORY USAGE. A counter grows in each minute of the day, and its record has ${COUNTERS}. The refused callers of a rule are as many as ` +
        'a record has room for, and each is refused in each of the last six minutes. A change is a new ' +
        'plan, key or block of a consumer, with an author and a reason.',
    ],
  }
}

async function statistics({ redis }: TestBed): Promise<Row[]> {
  const { store } = straightTo(redis, [])
  const batch: Batch = Array.from({ length: COUNTERS }, (_, i) => [`allowed rule-${i} - free`, 60])
  const add = (ms: number) => store.run([callFor(batch, new Date(ms))])
  for (let ms = 0; ms < DAY_MS; ms += MINUTE_MS) await add(DAY + ms)
  const perCounter = async () => (await bytesOf(redis, [statsKey(new Date(DAY))])) / COUNTERS
  const today = await perCounter()
  // Drops the hours and minutes.
  await add(DAY + 8 * DAY_MS)
  const later = await perCounter()
  return [
    bytesRow('bytes in Redis, a counter of statistics and a day', today),
    bytesRow('bytes in Redis, a counter of statistics and a day, after eight days', later),
  ]
}

async function refusedCallers({ redis }: TestBed): Promise<Row> {
  const { store } = straightTo(redis, [])
  const callers = new Map(
    Array.from({ length: CALLERS }, (_, i) => [`customer-${i}`, { count: 10, error: 0 }] as const),
  )
  const call = (ms: number): StoreCall => {
    const at = new Date(DAY + ms)
    return withCallers(callFor([], at), new Map([['limited per-minute', callers]]), at)
  }
  for (let minute = 0; minute < 60; minute++) await store.run([call(minute * MINUTE_MS)])
  const bytes = await bytesOf(redis, [callersKey(new Date(DAY))])
  return bytesRow('bytes in Redis, refused callers of a rule and an hour, the most', bytes)
}

async function auditTrail({ redis, near }: TestBed): Promise<Row> {
  const author = { actor: { kind: 'operator', name: 'operations' }, reason: 'ticket 4711' } as const
  const store = withActor(createAdminStore(near), author)
  for (let i = 0; i < CONSUMERS; i++) {
    const consumer = `customer-${i}`
    await setPlan(store, consumer, 'pro')
    await createKey(store, { consumer, label: 'production' })
    await blockConsumer(store, consumer)
  }
  return bytesRow(
    'bytes in Redis, a change in the audit trail, mean of three',
    (await bytesOf(redis, [AUDIT_KEY])) / (3 * CONSUMERS),
  )
}
