/** Removes a consumer from the records of refused callers (top-callers.ts). */
import { TEST_SUFFIX } from '../metrics/recorded-callers.ts'
import { callersKey } from '../store/keys.ts'
import { evalCommand } from './admin-connection.ts'
import type { AdminStore } from './admin-store-shape.ts'

const HOUR_MS = 3600e3

/** How long records are kept (ms). */
const KEPT_MS = 8 * 24 * HOUR_MS

/** How far the clock of an isolate can be ahead of this one (ms). */
const MAX_CLOCK_LEAD_MS = 60e3

/** The start of each hour since a time. */
export function hoursOf(since: Date, now: Date): Date[] {
  const first = Math.floor(since.getTime() / HOUR_MS)
  const last = Math.floor((now.getTime() + MAX_CLOCK_LEAD_MS) / HOUR_MS)
  return Array.from({ length: last - first + 1 }, (_, i) => new Date((first + i) * HOUR_MS))
}

/** Whether refusals of a consumer are on record. */
export const hasRefusals = async (store: AdminStore, consumer: string): Promise<boolean> =>
  (await countRecords(store, consumer, 'count')) > 0

/** Removes a caller from all records: its consumer, and identities of limits by name with this value. */
export async function eraseCaller(store: AdminStore, consumer: string): Promise<void> {
  await countRecords(store, consumer, 'erase')
}

async function countRecords(store: AdminStore, consumer: string, mode: 'count' | 'erase'): Promise<number> {
  const now = new Date()
  const hours = hoursOf(new Date(now.getTime() - KEPT_MS), now)
  const args = [consumer, consumer + TEST_SUFFIX, mode]
  const found = await store.runEach<number>(
    hours.map(at => evalCommand(RECORDS, [store.at(callersKey(at))], args)),
  )
  return found.reduce((sum, count) => sum + count, 0)
}

/** ARGV: the two names of the consumer; whether to erase it, or to count only. Its refusals are no longer part of the sums then. */
const RECORDS = `
local found = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local kept, isFound = {}, false
  for name, rest in string.gmatch(fields[i + 1], '(%S+) (%d+ %d+ %d+ %S+)') do
    local isOwn = name == ARGV[1] or name == ARGV[2]
    for value in string.gmatch(name, '=([^,]*)') do isOwn = isOwn or value == ARGV[1] end
    if isOwn then
      isFound = true
    else
      kept[#kept + 1] = name .. ' ' .. rest
    end
  end
  if isFound then found = found + 1 end
  if isFound and ARGV[3] == 'erase' then
    if #kept == 0 then
      redis.call('HDEL', KEYS[1], fields[i])
    else
      redis.call('HSET', KEYS[1], fields[i], table.concat(kept, ' '))
    end
  end
end
return found`
