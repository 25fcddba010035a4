/** `npx sluicegate explain GET /reports/7`: what the gateway makes of a request, and what that costs. */
import { Command, Option } from 'commander'
import type { Config } from '../../config/compile.ts'
import { CF_PARTS, type CfPart } from '../../config/identity-parts.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { adminStore } from '../../ops/admin-store.ts'
import type { CommandCounts, DecisionCost } from '../../ops/decision-cost.ts'
import { type Explanation, explain, type RuleExplanation } from '../../ops/explain.ts'
import { createLookUp, type LookUp, type PlanSource } from '../../ops/explain-stored.ts'
import { configOf, secretOf } from './administration.ts'
import { header, restStore } from './arguments.ts'
import { explainDocument } from './explain-document.ts'
import type { ConfigLoader } from './load-config.ts'
import { print, table, time } from './output.ts'
import { wordsOfRoute } from './route-words.ts'

interface Flags extends Partial<Record<CfPart, string>> {
  host?: string
  key?: string
  token?: string
  consumer?: string
  plan?: string
  address?: string
  header?: [string, string][]
  env?: string
  json?: boolean
}

export function explainCommand(load: ConfigLoader): Command {
  const command = new Command('explain')
    .description(
      'Say what the gateway makes of a request: its route, its rules, its cost. Nothing is counted. With UPSTASH_REDIS_REST_URL ' +
        'and UPSTASH_REDIS_REST_TOKEN set, the plan and the overrides of the consumer are those of that store.',
    )
    .argument('<method>', 'as in GET')
    .argument('<path>', 'as in /reports/7')
    .option('--host <host>', 'default: gateway.example')
    .addOption(
      new Option('--key <key>', 'an API key or an opaque key; - reads it from standard input').conflicts([
        'token',
        'consumer',
      ]),
    )
    .addOption(
      new Option(
        '--token <jwt>',
        'a token, of which all but the signature is verified; - as above',
      ).conflicts(['consumer']),
    )
    .option('--consumer <name>', 'as if it came with a credential of this consumer')
    .option('--plan <name>', 'in the place of the plan of the token or of the store')
    .option('--address <address>', "the client's")
    .option('--header <name: value>', 'one more header; as often as needed', header)
    .option('--env <name>', "default: $SLUICE_ENVIRONMENT, else the config's environment")
    .option('--json', 'one JSON document on standard output')
    .action(run.bind(null, load))
  for (const { part, example } of CF_PARTS) {
    command.option(`--${part} <value>`, `as Cloudflare reports it: ${example}`)
  }
  return command
}

async function run(load: ConfigLoader, method: string, path: string, flags: Flags): Promise<void> {
  const { json, env, header: headers, key, token, ...rest } = flags
  const config = await configOf(flags, load)
  const asked = {
    method: method.toUpperCase(),
    path,
    ...rest,
    ...(headers && { headers }),
    ...(key !== undefined && { key: await secretOf(key) }),
    ...(token !== undefined && { token: await secretOf(token) }),
  }
  const explanation = await explain(config, asked, lookUpFor(config))
  print({ ...(json && { json }) }, explainDocument(explanation), () => described(explanation, config))
}

/** When the store does not answer, the plan is assumed, as it is without a store. */
function lookUpFor({ environment, keyLocking, cluster, credentials }: Config): LookUp | undefined {
  const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env
  if (!UPSTASH_REDIS_REST_URL || !UPSTASH_REDIS_REST_TOKEN) return undefined
  const options = { environment, keyLocking, cluster, keyPrefix: credentials.keyPrefix }
  const lookUp = createLookUp(adminStore({ ...restStore({}), ...options }))
  return async credential => {
    try {
      return await lookUp(credential)
    } catch (error) {
      if (!(error instanceof AdminError && error.kind === 'store')) throw error
      console.error(`${error.message} The plan is assumed, and overrides are not known.`)
      return undefined
    }
  }
}

function described(explanation: Explanation, { routes, routeDefaults, cluster }: Config): string {
  const {
    method,
    url,
    route,
    accept,
    caller,
    refusal,
    isPreflight,
    trafficClass,
    rules,
    cost,
    hints,
    hooks,
  } = explanation
  const { hostname, pathname, search } = new URL(url)
  const settings = routes.find(({ name }) => name === route?.name) ?? routeDefaults
  const at = [route ? `route ${route.name}` : 'no route', ...wordsOfRoute(settings, routeDefaults)].join(', ')
  const lines = [
    `${method} ${hostname}${pathname}${search}`,
    `  Route    ${at}; takes ${accept.join(', ') || 'nothing that all readings of the path take'}`,
    `  Caller   ${callerOf(caller)}`,
    ...(trafficClass ? [`  Class    ${classText(trafficClass)}`] : []),
    `  Comes    ${isPreflight ? 'as a preflight: no credential, and nothing is counted' : refusal ? `no: ${refusal.status}, ${refusal.reason}` : caller.consumer ? 'if the store agrees' : 'yes'}`,
    ...(hooks
      ? [`  Hooks    ${hooks.join(', ')}: not run here, and a request may be handled differently`]
      : []),
    '',
    ruleTable(rules),
    '',
    costOf(cost, cluster),
    ...hints.flatMap(hint => ['', hint]),
  ]
  return lines.join('\n')
}

function classText({ name, shedBy }: NonNullable<Explanation['trafficClass']>): string {
  return shedBy ? `${name}; while the origin is too busy, ${shedBy} sheds it` : name
}

function callerOf({ method, consumer, address, plan, planFrom }: Explanation['caller']): string {
  const who =
    consumer === undefined
      ? method
      : `${consumer === '?' ? 'whoever the key belongs to' : consumer}, by ${method}, plan ${plan} (${PLAN_FROM[planFrom!]})`
  return `${who}; address ${address}`
}

const PLAN_FROM: Record<PlanSource, string> = {
  option: 'from --plan',
  token: 'of the token',
  key: 'of the key, in the store',
  consumer: 'of the consumer, in the store',
  default: 'the default: no other is stored',
  assumed: 'assumed: the first of the config',
}

function ruleTable(rules: readonly RuleExplanation[]): string {
  const rows = rules.map(rule => {
    const by = rule.by.join(' + ')
    if (!rule.applies) return [rule.name, by, `no: ${rule.because}`, '', '', '']
    const { limit, allows, burst, algorithm, mode, on, cost, key, override } = rule
    const until = override?.until ? ` until ${time(override.until)} UTC` : ''
    const own = override ? `, by an override${until}` : ''
    const numbers = `${allows}${burst === limit ? '' : `, burst ${burst}`}, ${algorithm}${own}`
    return [rule.name, by, numbers, on === 'auth-failure' ? `${mode}, guesses` : mode, String(cost), key]
  })
  return table(['RULE', 'BY', 'APPLIES', 'MODE', 'COST', 'COUNTED IN'], rows)
}

function costOf({ httpRequests, calls, admitted, refused, ended }: DecisionCost, isCluster: boolean): string {
  if (httpRequests === 0) return 'The store is not asked: this costs nothing there.'
  const requests = httpRequests === 1 ? '1 HTTP request' : `${httpRequests} HTTP requests`
  const slots = calls === 1 ? '' : `, ${calls} slots`
  return [
    `To the store: ${requests}${slots}.`,
    `  admitted  ${countsOf(admitted)}`,
    `  refused   ${countsOf(refused)}${isCluster && calls > 1 ? '; one more HTTP request where another slot has spent, to give it back' : ''}`,
    ...(ended
      ? [
          `  its end   at most ${countsOf(ended)}; none if the next decision admits another request of these callers`,
        ]
      : []),
  ].join('\n')
}

function countsOf({ commands, least, most, dollarsPerMillion: [low, high] }: CommandCounts): string {
  const names = commands.map(({ command, least, most }) => {
    if (least === most) return least === 1 ? command : `${least} × ${command}`
    return `${least} to ${most} of ${command}`
  })
  const total = least === most ? `${least}` : `${least} to ${most}`
  const dollars = low === high ? `$${low}` : `$${low} to $${high}`
  return `${total} commands (${names.join(', ')}): ${dollars} per million`
}
