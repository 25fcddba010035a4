/** The config of `sluicegate serve`: that of the Worker, without what only Cloudflare has. */
import { checkedConfig } from '../../config/check/check.ts'
import { isPlainObject } from '../../config/check/plain.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { ConfigError, type Mistake } from '../../config/config-error.ts'
import { CF_PARTS } from '../../config/identity-parts.ts'
import { withLines } from '../config-lines.ts'
import { importConfig } from '../import-config.ts'

/**
 * Reads the config from a file.
 * @throws ConfigError with every mistake; ConfigFileError if the file cannot be loaded
 */
export async function readServeConfig(file: string): Promise<Config> {
  const module = await importConfig(file)
  try {
    return checkServeConfig(module.default as ConfigInput)
  } catch (error) {
    throw withLines(error, file)
  }
}

/**
 * Checks and compiles a config for `serve`. Without `address.from`, the address of a client is the other end of the connection.
 * @throws ConfigError with every mistake
 */
export function checkServeConfig(input: ConfigInput): Config {
  // The check reports anything that is not a config.
  if (!isPlainObject(input)) return checkedConfig(input)
  const from = input.address?.from
  const config = checkedConfig(from ? input : { ...input, address: { ...input.address, from: 'cloudflare' } })
  const mistakes = mistakesOnNode(input)
  if (mistakes.length > 0) throw new ConfigError(mistakes)
  return from ? config : { ...config, address: { ...config.address, from: 'peer' } }
}

/** Settings that only Cloudflare can follow. */
function mistakesOnNode({ address, block, rules }: ConfigInput): Mistake[] {
  const mistakes: Mistake[] = []
  const report = (path: string, message: string) => mistakes.push({ path, message })
  if (address?.from === 'cloudflare') report('address.from', FROM_CLOUDFLARE)
  if (address?.trustedWorkers) report('address.trustedWorkers', WORKERS)
  if (block?.countries?.length) report('block.countries', `is unknown to serve: ${BY_CLOUDFLARE}`)
  for (const [i, { by }] of (rules ?? []).entries()) {
    const part = CF_PARTS.find(({ part }) => [by].flat().includes(part))?.part
    if (part) report(`rules[${i}].by`, `has '${part}', which is unknown to serve: ${BY_CLOUDFLARE}`)
  }
  return mistakes
}

const FROM_CLOUDFLARE =
  "is 'cloudflare', but a client of serve can write CF-Connecting-IP itself. Leave it out if clients connect directly. Behind Cloudflare, use 'x-forwarded-for' with Cloudflare's addresses (https://www.cloudflare.com/ips/) as trustedProxies."

const WORKERS = 'has no effect with serve: service bindings connect Workers only. Leave it out.'

const BY_CLOUDFLARE =
  'only Cloudflare reports it. Leave it out, or use a header that the proxy in front sets.'
