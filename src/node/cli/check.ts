/** `npx sluice check`: is the config right, and what does it say? */
import { resolve } from 'node:path'
import { Command } from 'commander'
import type { GatewayRule, LimitRule } from '../../config/compile.ts'
import { loadConfig } from './load-config.ts'

export function checkCommand(): Command {
  return new Command('check')
    .description('Check sluice.config.ts: every mistake with its place, value and fix.')
    .argument('[file]', 'another config file')
    .action(check)
}

async function check(file?: string): Promise<void> {
  const config = await loadConfig(file && resolve(file))
  const rules = config.rules.length === 1 ? '1 rule' : `${config.rules.length} rules`
  console.log(`The config is right: ${rules}, origin ${config.origin}.`)
  list(config.rules)
  for (const [name, set] of config.limits) {
    console.log(`The limit ${name}:`)
    list(set)
  }
}

function list(rules: readonly (GatewayRule | LimitRule)[]): void {
  const width = Math.max(...rules.map(rule => rule.name.length))
  for (const rule of rules) console.log(`  ${rule.name.padEnd(width)}  ${summary(rule)}`)
}

function summary(rule: GatewayRule | LimitRule): string {
  const { limit, period, calendar, by, algorithm, quota, match, mode, enforcedShare, candidateFor } = rule
  const time = calendar ? `${calendar.period} (${calendar.timeZone})` : `${period / 1e6} s`
  const parts = [
    `${limit} per ${time}${by.length > 0 ? ` by ${[by].flat().join(' and ')}` : ''}, ${algorithm}`,
  ]
  if (algorithm === 'leaky-bucket') parts.push(`queue ${quota.burst - 1}`)
  else if (quota.burst !== limit) parts.push(`burst ${quota.burst}`)
  if (quota.cost !== 1) parts.push(`cost ${quota.cost}`)
  if (candidateFor) parts.push(`candidate for ${candidateFor}`)
  else if (mode === 'shadow') parts.push('shadow')
  else if (enforcedShare < 1)
    parts.push(`enforced for ${Number((enforcedShare * 100).toPrecision(12))} % of callers`)
  if (match.methods) parts.push([...match.methods].join('|'))
  if (match.url) parts.push(`${match.url.hostname === '*' ? '' : match.url.hostname}${match.url.pathname}`)
  if (match.plans) parts.push(`plan ${match.plans.join('|')}`)
  if ('anonymous' in rule && rule.anonymous) parts.push('anonymous too')
  return parts.join(', ')
}
