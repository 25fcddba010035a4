/** What the server says about itself (INFO): version, cluster, memory and eviction, persistence, replicas. And its clock. */
import type { Config } from '../../config/compile.ts'
import type { RestAnswer } from '../../store/rest.ts'
import { type Checks, type Finding, fault, findings, limit, ok, unknown } from './checks.ts'
import type { Bed } from './examined-store.ts'
import type { Send } from './key-space.ts'

type Info = Readonly<Record<string, string | undefined>>

/** Of maxmemory (%). */
const FULL = 95
const NEARLY_FULL = 80
const LATE_SECONDS = 10

export function serverChecks({ send, config }: Bed): Checks {
  let info: Promise<Info> | undefined
  const fromInfo = (find: (info: Info) => Finding | undefined) => async () => {
    info ??= send([['INFO']]).then(([answer]) => parseInfo(answer!))
    return (
      find(await info) ??
      unknown`The store does not tell it: INFO lacks it, or is not permitted. → Permit INFO to the Redis user (+info; no rename-command), or look into the console of the database.`
    )
  }
  return {
    version: fromInfo(info => versionOf(info, config)),
    memory: fromInfo(memoryOf),
    persistence: fromInfo(persistenceOf),
    replicas: fromInfo(replicasOf),
    clock: () => checkClock(send),
  }
}

const parseInfo = ({ result }: RestAnswer): Info =>
  Object.fromEntries(
    [...String(result).matchAll(/^([\w-]+):([^\r\n]*)/gm)].map(([, name, text]) => [name!, text!]),
  )

function versionOf({ valkey_version: valkey, redis_version: redis, cluster_enabled }: Info, config: Config) {
  const version = /^[\d.]{3,20}$/.exec(valkey ?? redis ?? '')?.[0]
  if (!version) return undefined
  const isCluster = cluster_enabled === '1'
  if (isCluster && !config.cluster)
    return fault`The server is a Redis Cluster, and the config has no cluster: true. → Set store: { cluster: true } in the config, and deploy it.`
  if (!isCluster && config.cluster)
    return limit`The config has cluster: true, and the server is not a Redis Cluster: decisions take more commands than needed. → Remove store.cluster from the config.`
  // Sluice uses ZMSCORE, of Redis 6.2.
  if (Number.parseFloat(version) < 6.2)
    return fault`Redis ${version} is too old. → Use Redis 6.2 or newer, or Valkey.`
  return ok`${valkey ? 'Valkey' : 'Redis'} ${version}${isCluster ? ', a cluster; the next four checks are about one of its nodes' : ''}.`
}

function memoryOf({ maxmemory_policy: policy = '', maxmemory, used_memory }: Info): Finding | undefined {
  const max = Number(maxmemory)
  if (!/^[a-z-]{5,20}$/.test(policy) || Number.isNaN(max)) return undefined
  const percent = max > 0 ? Math.round((Number(used_memory) / max) * 100) : 0
  const used = max > 0 ? `${percent} % of maxmemory is used` : 'maxmemory is not set'
  const found = findings({ memory_used_percent: percent })
  if (policy !== 'noeviction') {
    const evictsKeys = max > 0 && policy.startsWith('allkeys-')
    const tag = evictsKeys ? found.fault : found.limit
    return tag`Eviction is on (${policy}; ${used}): when the memory is full, limits start again${evictsKeys ? ', and API keys are deleted' : ''}. → Turn it off (redis-cli CONFIG SET maxmemory-policy noeviction), and choose enough memory.`
  }
  if (percent < NEARLY_FULL) return found.ok`Eviction is off, and ${used}.`
  const tag = percent >= FULL ? found.fault : found.limit
  return tag`The memory is ${percent >= FULL ? '' : 'nearly '}full (${used}). Redis refuses to count when it is full. → Raise maxmemory, or choose a larger database.`
}

function persistenceOf(info: Info): Finding | undefined {
  if (info.aof_enabled === undefined) return undefined
  if (info.aof_last_write_status === 'err' || info.rdb_last_bgsave_status === 'err')
    return fault`The last write to the disk has failed, and Redis may refuse all changes. → Look at the log of Redis, and at the space on its disk.`
  if (info.aof_enabled === '1') return ok`The append-only file is on.`
  return limit`The append-only file is off: a crash loses counts, and without snapshots all API keys. → Turn it on (appendonly yes): docs/deploy.md#your-own-redis`
}

function replicasOf({ role, master_repl_offset: offset, ...info }: Info): Finding | undefined {
  if (role === undefined) return undefined
  if (role !== 'master')
    return fault`The server is a replica: it cannot count. → Use the address of the primary.`
  const replicas = Object.entries(info).flatMap(([name, text]) =>
    /^slave\d+$/.test(name) ? [new URLSearchParams(text!.replaceAll(',', '&'))] : [],
  )
  if (replicas.length === 0) return ok`The server is a primary without replicas.`
  const numbers = (field: string) => replicas.map(replica => Number(replica.get(field) ?? 0))
  const seconds = Math.max(...numbers('lag'))
  const bytes = Math.max(0, Number(offset) - Math.min(...numbers('offset')))
  const found = findings({ replicas: replicas.length, lag_seconds: seconds, lag_bytes: bytes })
  return seconds > LATE_SECONDS || replicas.some(replica => replica.get('state') !== 'online')
    ? found.limit`A replica lags, by ${seconds} s and ${bytes} bytes: if it takes over now, it does not know the last counts and changes. → Find out why: its load, client-output-buffer-limit, or the network.`
    : found.ok`The server is a primary (replicas: ${replicas.length}, at most ${seconds} s behind).`
}

const CLOCK_SAMPLES = 5

async function checkClock(send: Send): Promise<Finding> {
  let best = { offsetMs: 0, errorMs: Number.POSITIVE_INFINITY }
  for (let i = 0; i < CLOCK_SAMPLES; i++) {
    const sentAt = Date.now()
    const [answer] = await send([['TIME']])
    const errorMs = (Date.now() - sentAt) / 2
    const [seconds = Number.NaN, micros = 0] = Array.isArray(answer?.result) ? answer.result.map(Number) : []
    if (Number.isNaN(seconds))
      return unknown`The store does not tell its time. → Permit TIME to the Redis user.`
    if (errorMs < best.errorMs) best = { offsetMs: seconds * 1e3 + micros / 1e3 - sentAt - errorMs, errorMs }
  }
  return describeOffset('store', best.offsetMs, best.errorMs)
}

/** From here on (ms), windows of a calendar and the ends of changes are visibly off. */
const MAX_OFFSET_MS = 1000

/** @param errorMs how much the measurement can be wrong */
export function describeOffset(what: 'store' | 'gateway', offsetMs: number, errorMs: number): Finding {
  const seconds = Math.round(offsetMs / 100) / 10
  const found = findings({ offset_seconds: seconds })
  if (Math.abs(offsetMs) <= MAX_OFFSET_MS + errorMs)
    return found.ok`The clock of the ${what} agrees with the one of this machine.`
  const [where, when] = seconds < 0 ? ['behind', 'late'] : ['ahead of', 'early']
  return found.limit`The clock of the ${what} is ${Math.abs(seconds)} s ${where} the one of this machine. Limits count right, but days begin, and keys and changes expire, that much too ${when}. → Find out which of the two is wrong (timedatectl), and synchronize it.`
}
