/** Arguments that several commands take, checked where they are read. */
import { InvalidArgumentError } from 'commander'
import { isOriginUrl, isStoreUrl } from '../../config/forms.ts'
import { AdminError } from '../../ops/admin-error.ts'

export function port(text: string): number {
  const number = Number(text)
  if (!/^\d{1,5}$/.test(text) || number > 65535) {
    throw new InvalidArgumentError('A port is a number from 0 (any free one) to 65535.')
  }
  return number
}

export function originUrl(text: string): string {
  if (!isOriginUrl(text))
    throw new InvalidArgumentError('An origin is a URL such as https://api.example.com.')
  return text
}

export function redisUrl(text: string): string {
  if (!/^(rediss?|unix):\/\/./.test(text) || !URL.canParse(text)) {
    throw new InvalidArgumentError('Write redis://host:port, rediss://host:port or unix:///path/to/socket.')
  }
  return text
}

export function redisChoice(text: string): string {
  return text === 'auto' || text === 'embedded' ? text : redisUrl(text)
}

export function seconds(text: string): number {
  const number = Number(text)
  if (!(number > 0 && number <= 600)) throw new InvalidArgumentError('Write seconds, from 0.001 to 600.')
  return number
}

export function units(text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('Write a whole number.')
}

/** A fraction, as in the config. */
export function share(text: string): number {
  const number = Number(text)
  if (/^\d*\.?\d+$/.test(text) && number <= 1) return number
  throw new InvalidArgumentError('Write a fraction from 0 to 1, as in 0.25.')
}

/** `account=42`, given as often as needed. */
export function part(text: string, others: Record<string, string> = {}): Record<string, string> {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? []
  if (name === undefined || value === undefined) throw new InvalidArgumentError('Write it like account=42.')
  return { ...others, [name]: value }
}

/** `x-tenant: a`, given as often as needed. */
export function header(text: string, others: [string, string][] = []): [string, string][] {
  const [, name, value] = /^([^:]+):\s*(.*)$/s.exec(text) ?? []
  // Not as commander would say it, with the value: it may be a secret.
  if (name === undefined || value === undefined) {
    throw new AdminError('usage', "--header: write it as in 'x-tenant: a'.")
  }
  return [...others, [name.trim(), value]]
}

/** The REST store that a command talks to, from its flags or from the environment. */
export function restStore(flags: { url?: string; token?: string }): { url: string; token: string } {
  const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env
  const url = flags.url ?? UPSTASH_REDIS_REST_URL
  const token = flags.token ?? UPSTASH_REDIS_REST_TOKEN
  if (!url || !token) {
    throw new AdminError(
      'usage',
      'Which store? Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN, or give --url and --token. ' +
        '`npm start` prints those of the local one.',
    )
  }
  if (!isStoreUrl(url))
    // Never the value: what is pasted here by mistake is a redis:// URL with its password.
    throw new AdminError(
      'usage',
      'The URL of the store is not an http or https URL without credentials. Take the one of its REST API.',
    )
  return { url, token }
}
