/** What the command line puts into the store, through the same REST protocol and client as the gateway. */
import { Redis } from '@upstash/redis'
import { sha256 } from '../../credentials/api-key.ts'
import { KEY_LOCKING_SCRIPT, PLAIN_SCRIPT } from '../../lua/bundle.generated.ts'
import { credentialKey } from '../../store/keys.ts'
import { formatCredential } from '../../store/records.ts'

interface Rest {
  url: string
  token: string
}

export interface NewKey {
  consumer: string
  plan: string
  /** How long it is good for; absent: until it is removed. */
  seconds?: number
}

/** @throws when the store cannot be reached or refuses; the message holds no key and no token */
export async function storeKey(
  rest: Rest,
  apiKey: string,
  { consumer, plan, seconds }: NewKey,
): Promise<void> {
  const key = credentialKey(consumer, await sha256(apiKey))
  const record = formatCredential({ plan, createdAt: new Date() })
  await asking(rest, redis => redis.set(key, record, seconds ? { ex: seconds } : undefined))
}

export async function removeKey(rest: Rest, consumer: string, digest: string): Promise<void> {
  await asking(rest, redis => redis.del(credentialKey(consumer, digest)))
}

/** So that not even the first decision has to send the script. */
export async function loadScript(rest: Rest, { keyLocking }: { keyLocking: boolean }): Promise<void> {
  const { source } = keyLocking ? KEY_LOCKING_SCRIPT : PLAIN_SCRIPT
  await asking(rest, redis => redis.scriptLoad(source))
}

async function asking<T>({ url, token }: Rest, ask: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis({
    url,
    token,
    retry: { retries: 0 },
    signal: () => AbortSignal.timeout(5000),
    enableTelemetry: false,
  })
  try {
    return await ask(redis)
  } catch (error) {
    // The client's messages quote the whole command.
    const said = error instanceof Error ? error.message.split(', command was:')[0] : ''
    throw new Error(`The store at ${new URL(url).host} did not take it: ${said || 'no answer'}`)
  }
}
