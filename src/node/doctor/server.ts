/** What the server says about itself (INFO): version, cluster, memory and eviction, persistence, replicas. And its clock. */
import type { Bed, Checks } from './checks.ts'
import { type Finding, fault, firstOf, limit, ok, unknown } from './findings.ts'

type Info = Readonly<Record<string, string | undefined>>

export function serverChecks({ send, config }: Bed): Checks {
  let info: Promise<Info> | undefined
  const fromInfo = (find: (info: Info) => Finding | undefined) => async () => {
    info ??= send([['INFO']]).then(([answer]) => fieldsOf(String(answer!.result), /^([\w-]+):([^\r\n]*)/gm))
    return (
      find(await info) ??
      unknown`The store does not report this: INFO lacks it, or is not permitted. → Permit INFO to the Redis user (+info; no rename-command), or look into the console of the database.`
    )
  }
  return {
    version: fromInfo(info => versionOf(info, config.cluster)),
    memory: fromInfo(memoryOf),
    persistence: fromInfo(persistenceOf),
    replicas: fromInfo(replicasOf),
    clock: () => checkClock(send),
  }
}

const fieldsOf = (text: string, pattern: RegExp): Info =>
  Object.fromEntries([...text.matchAll(pattern)].map(([, name, value]) => [name!, value!]))

/** @returns undefined for anything but a whole number, from 0 on */
function countIn(text: unknown): number | undefined {
  return /^\d{1,15}$/.test(String(text)) ? Number(text) : undefined
}

function versionOf({ valkey_version: valkey, redis_version: redis, ...info }: Info, expectsCluster: boolean) {
  const version = /^[\d.]{3,20}$/.exec(valkey ?? redis ?? '')?.[0]
  const isCluster = info.cluster_enabled === '1'
  if (!version) return undefined
  return firstOf(
    fault`${isCluster && !expectsCluster}: The server is a Redis Cluster, and the config has no cluster: true. → Set store: { cluster: true } in the config, and deploy it.`,
    limit`${!isCluster && expectsCluster}: The config has cluster: true, and the server is not a Redis Cluster: decisions take more commands than needed. → Remove store.cluster from the config.`,
    // Sluice uses ZMSCORE, of Redis 6.2.
    fault`${Number.parseFloat(version) < 6.2}: Redis ${version} is too old. → Use Redis 6.2 or newer, or Valkey.`,
    ok`${valkey ? 'Valkey' : 'Redis'} ${version}${isCluster ? ', a cluster; the next four checks are about one of its nodes' : ''}.`,
  )
}

/** Of maxmemory (%). */
const [NEARLY_FULL, FULL] = [80, 95]

function memoryOf({ maxmemory_policy: policy = '', maxmemory, used_memory }: Info): Finding | undefined {
  const max = countIn(maxmemory)
  const usedBytes = max === 0 ? 0 : countIn(used_memory)
  if (!/^[a-z-]{5,20}$/.test(policy) || max === undefined || usedBytes === undefined) return undefined
  const percent = max > 0 ? Math.round((usedBytes / max) * 100) : 0
  const used = max > 0 ? `${percent} % of maxmemory is used` : 'maxmemory is not set'
  const isOn = `Eviction is on (${policy}; ${used}): when the memory is full, limits start again`
  const turnOff = 'Turn it off (redis-cli CONFIG SET maxmemory-policy noeviction), and choose enough memory.'
  const addMemory = 'Raise maxmemory, or choose a larger database.'
  return firstOf(
    fault`${max > 0 && policy.startsWith('allkeys-')}: ${isOn}, and API keys are deleted. → ${turnOff}`,
    limit`${policy !== 'noeviction'}: ${isOn}. → ${turnOff}`,
    fault`${percent >= FULL}: The memory is full (${used}): Redis refuses to count. → ${addMemory}`,
    limit`${percent >= NEARLY_FULL}: The memory is nearly full (${used}). When it is full, Redis refuses to count. → ${addMemory}`,
    ok`Eviction is off, and ${used}.`,
  )
}

function persistenceOf(info: Info): Finding | undefined {
  if (info.aof_enabled === undefined) return undefined
  const hasFailed = info.aof_last_write_status === 'err' || info.rdb_last_bgsave_status === 'err'
  return firstOf(
    fault`${hasFailed}: The last write to the disk has failed, and Redis may refuse all changes. → Look at the log of Redis, and at the space on its disk.`,
    limit`${info.aof_enabled !== '1'}: The append-only file is off: a crash loses counts, and without snapshots all API keys. → Turn it on (appendonly yes): docs/deploy.md#your-own-redis`,
    ok`The append-only file is on.`,
  )
}

const LATE_SECONDS = 10

function replicasOf({ role, master_repl_offset: offset, ...info }: Info): Finding | undefined {
  if (role === undefined) return undefined
  const names = Object.keys(info).filter(name => /^slave\d+$/.test(name))
  const replicas = names.map(name => fieldsOf(info[name]!, /(\w+)=([^,]*)/g))
  const lags = replicas.map(({ lag = 0 }) => countIn(lag))
  const [written, ...received] = [offset, ...replicas.map(replica => replica.offset)].map(countIn)
  if (replicas.length > 0 && [...lags, written, ...received].includes(undefined)) return undefined
  const seconds = Math.max(0, ...lags.map(Number))
  const bytes = Math.max(0, ...received.map(each => Number(written) - Number(each)))
  const isBehind = seconds > LATE_SECONDS || replicas.some(({ state }) => state !== 'online')
  const found = firstOf(
    fault`${role !== 'master'}: The server is a replica: it cannot count. → Use the address of the primary.`,
    limit`${isBehind}: A replica lags, by ${seconds} s and ${bytes} bytes: if it takes over now, it does not know the last counts and changes. → Find out why: its load, client-output-buffer-limit, or the network.`,
    ok`${replicas.length === 0}: The server is a primary without replicas.`,
    ok`The server is a primary (replicas: ${replicas.length}, at most ${seconds} s behind).`,
  )
  return { ...found, measured: { replicas: replicas.length, lag_seconds: seconds, lag_bytes: bytes } }
}

async function checkClock(send: Bed['send']): Promise<Finding> {
  const sentAt = Date.now()
  const [answer] = await send([['TIME']])
  const errorMs = (Date.now() - sentAt) / 2
  const [seconds, micros] = Array.isArray(answer?.result) ? answer.result.map(countIn) : []
  return seconds === undefined || micros === undefined
    ? unknown`The store does not tell its time. → Permit TIME to the Redis user.`
    : describeOffset('store', seconds * 1e3 + micros / 1e3 - sentAt - errorMs, errorMs)
}

/** From here on (ms), windows of a calendar and the ends of changes are visibly off. */
const MAX_OFFSET_MS = 1000

/** @param errorMs how much the measurement can be wrong */
export function describeOffset(what: 'store' | 'gateway', offsetMs: number, errorMs: number): Finding {
  const seconds = Math.round(offsetMs / 100) / 10
  const [where, when] = seconds < 0 ? ['behind', 'late'] : ['ahead of', 'early']
  const found = firstOf(
    ok`${Math.abs(offsetMs) <= MAX_OFFSET_MS + errorMs}: The clock of the ${what} agrees with the one of this machine.`,
    limit`The clock of the ${what} is ${Math.abs(seconds)} s ${where} the one of this machine. Limits count right, but days begin, and keys and changes expire, that much too ${when}. → Find out which of the two is wrong (timedatectl), and synchronize it.`,
  )
  return { ...found, measured: { offset_seconds: seconds } }
}
