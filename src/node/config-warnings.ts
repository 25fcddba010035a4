/** The warnings about a valid config, as lines with the file and the line of each setting. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ConfigInput } from '../config/check/schema.ts'
import { type Warning, warningsOf } from '../config/check/warnings.ts'
import { PROCESS_SIGNALS } from '../config/compile-shedding.ts'
import { mistakeText } from '../config/config-error.ts'
import { isField } from '../config/identity-parts.ts'
import { METRICS_TOKEN, weaknessOf } from '../config/metrics-token.ts'
import { KEY_SECRET } from '../credentials/key-signature.ts'
import { locate, shortPath } from './config-lines.ts'
import { readLocalVariables } from './dev-vars.ts'
import { compatibilityIn, hasCustomDomain } from './wrangler-file.ts'

/** @param input a config without mistakes @param others warnings from other sources */
export function locatedWarnings(
  input: ConfigInput,
  file: string,
  others: readonly Warning[] = [],
): Warning[] {
  return locate(
    [...warningsOf(input), ...warningsOfWrangler(input, file), ...warningsOfSecrets(input, file), ...others],
    file,
  )
}

const CLIENT_SIGNAL = 'enable_request_signal'
const STRICTLY_PUBLIC = 'global_fetch_strictly_public'

/** Finds settings that do not go with the wrangler.toml beside the config. Without that file, the config is not that of a Worker. */
function warningsOfWrangler(
  { origin, onClientGone, originConnections, shedding }: ConfigInput,
  file: string,
): Warning[] {
  const wrangler = join(dirname(file), 'wrangler.toml')
  if (!existsSync(wrangler)) return []
  const toml = readFileSync(wrangler, 'utf8')
  const { flags } = compatibilityIn(toml)
  const warnings: Warning[] = []
  if (onClientGone === 'abort' && !flags.includes(CLIENT_SIGNAL)) {
    warnings.push({
      path: 'onClientGone',
      message: `'abort' has no effect, because workerd does not report that a client has left. In wrangler.toml, add compatibility_flags = ["${CLIENT_SIGNAL}"].`,
    })
  }
  if (originConnections === 'fresh') {
    warnings.push({
      path: 'originConnections',
      message:
        "'fresh' has no effect in the Worker of wrangler.toml: its platform decides about connections. Use sluicegate serve, or an origin that ends its responses where they say.",
    })
  }
  for (const signal of PROCESS_SIGNALS) {
    if (!shedding?.workerUtilization?.signals.includes(signal)) continue
    warnings.push({
      path: 'shedding.workerUtilization.signals',
      message: `'${signal}' has no effect in the Worker of wrangler.toml, which cannot measure how busy it is. Use another signal, or sluicegate serve.`,
    })
  }
  if (origin === 'route' && flags.includes(STRICTLY_PUBLIC)) {
    warnings.push({
      path: 'origin',
      message: `with 'route', the Worker fetches its own URL, which the flag ${STRICTLY_PUBLIC} sends to the Worker again instead of to the origin. In wrangler.toml, remove the flag, or set origin to the URL of another zone.`,
    })
  }
  if (origin === 'route' && hasCustomDomain(toml)) {
    warnings.push({
      path: 'origin',
      message:
        "with 'route', the Worker fetches its own URL, and a custom domain has no origin behind the Worker. In wrangler.toml, give the Worker a route instead of the custom domain, or set origin to a URL.",
    })
  }
  return warnings
}

/** Finds secrets that are missing or can be guessed, in the variables of the shell and in `.dev.vars`. */
function warningsOfSecrets({ metrics, rules = [] }: ConfigInput, file: string): Warning[] {
  const variables = readLocalVariables({ root: dirname(file) })
  const weakness = metrics && weaknessOf(variables[METRICS_TOKEN])
  const counting = rules.findIndex(({ by }) => [by].flat().some(part => part !== undefined && isField(part)))
  return [
    ...(weakness ? [weakness] : []),
    ...(counting >= 0 && !variables[KEY_SECRET]
      ? [{ path: `rules[${counting}].by`, message: NEEDS_KEY_SECRET }]
      : []),
  ]
}

const NEEDS_KEY_SECRET = `a field of the body is counted by its digest, for which the deployment needs the secret ${KEY_SECRET}. Neither this shell nor .dev.vars has it. Make one with npx sluicegate keys secret.`

export const warningLine = (warning: Warning, file: string) => mistakeText(warning, shortPath(file))
