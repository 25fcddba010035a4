/** Arguments that several commands take, checked where they are read. */
import { InvalidArgumentError } from 'commander'
import { isOriginUrl, isStoreUrl } from '../../config/forms.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { isUnescaped, UNESCAPED } from '../redis-store/redis-url.ts'

export function parsePort(text: string): number {
  const number = Number(text)
  if (!/^\d{1,5}$/.test(text) || number > 65535) {
    throw new InvalidArgumentError('Use a number from 0 to 65535; 0 takes any free port.')
  }
  return number
}

export function parseOriginUrl(text: string): string {
  if (!isOriginUrl(text))
    throw new InvalidArgumentError(
      'Use an http or https URL without query or credentials, such as https://api.example.com.',
    )
  return text
}

export function parseRedisUrl(text: string): string {
  if (isRedisUrl(text)) return text
  throw new InvalidArgumentError(isUnescaped(text) ? UNESCAPED : `Use ${REDIS_URLS}.`)
}

const REDIS_URLS = 'redis://host:port, rediss://host:port or unix:///path/to/socket'

const isRedisUrl = (text: string) =>
  /^(rediss?|unix):\/\/./.test(text) && URL.canParse(text) && !isUnescaped(text)

export function parseRedisChoice(text: string): string {
  if (text === 'auto' || text === 'embedded' || isRedisUrl(text)) return text
  throw new InvalidArgumentError(isUnescaped(text) ? UNESCAPED : `Use auto, embedded, ${REDIS_URLS}.`)
}

export function parseSeconds(text: string): number {
  const number = Number(text)
  if (!(number > 0 && number <= 600))
    throw new InvalidArgumentError('Use a number of seconds above 0, up to 600.')
  return number
}

export function parseUnits(text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('Use a whole number.')
}

/** A fraction, as in the config. */
export function parseShare(text: string): number {
  const number = Number(text)
  if (/^\d*\.?\d+$/.test(text) && number <= 1) return number
  throw new InvalidArgumentError('Use a number from 0 to 1, such as 0.25.')
}

/** `account=42`, given as often as needed. */
export function parsePart(text: string, others: Record<string, string> = {}): Record<string, string> {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? []
  if (name === undefined || value === undefined)
    throw new InvalidArgumentError('Use the form part=value, such as account=42.')
  return { ...others, [name]: value }
}

/** `x-tenant: a`, given as often as needed. */
export function parseHeader(text: string, others: [string, string][] = []): [string, string][] {
  const [, name, value] = /^([^:]+):\s*(.*)$/s.exec(text) ?? []
  // The message of commander would show the value, which may be a secret.
  if (name === undefined || value === undefined) {
    throw new AdminError('usage', "--header is not valid. Use the form name: value, such as 'x-tenant: a'.")
  }
  return [...others, [name.trim(), value]]
}

/** Reads a variable of the environment as an option would be read. */
export function fromVariable<T>(name: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text)
  } catch (error) {
    throw new AdminError('usage', `${name} is not valid. ${(error as Error).message}`)
  }
}

/** The gateway whose API a command uses in place of the store (api-commands.ts). Undefined: it uses the store. */
export const apiUrlOf = ({ api, url }: { api?: string; url?: string }): string | undefined =>
  api ?? (url === undefined ? process.env.SLUICE_API_URL || undefined : undefined)

/** The REST store that a command talks to, from its flags or from the environment. @param option that of the URL, for messages */
export function restStore(
  flags: { url?: string | undefined; token?: string | undefined },
  option = '--url',
): { url: string; token: string } {
  const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env
  const url = flags.url ?? UPSTASH_REDIS_REST_URL
  const token = flags.token ?? UPSTASH_REDIS_REST_TOKEN
  if (!url || !token) throw new AdminError('usage', describeMissing(url, token))
  if (!isStoreUrl(url)) {
    const name = flags.url === undefined ? 'UPSTASH_REDIS_REST_URL' : option
    // Never the value: users paste a redis:// URL here by mistake, and it has a password.
    throw new AdminError(
      'usage',
      /^rediss?:/i.test(url)
        ? `${name} is the URL of a Redis server, not of a REST API. Set REDIS_URL to it instead.`
        : `${name} is not valid. Use the http or https URL of the store's REST API, without credentials.`,
    )
  }
  return { url, token }
}

function describeMissing(url: string | undefined, token: string | undefined): string {
  if (url) return 'UPSTASH_REDIS_REST_TOKEN is not set. Set it, or use --token.'
  if (token) return 'UPSTASH_REDIS_REST_URL is not set. Set it, or use --url.'
  return (
    'No store is set. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or REDIS_URL, or use --url. ' +
    '`npm start` prints the values of the local store.'
  )
}
