/** `npx sluice check`: is the config right, and what does it say? */
import { resolve } from 'node:path'
import { Command } from 'commander'
import type { Rule } from '../../config/compile.ts'
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
  const width = Math.max(...config.rules.map(rule => rule.name.length))
  for (const rule of config.rules) console.log(`  ${rule.name.padEnd(width)}  ${summary(rule)}`)
}

function summary({ limit, period, by, algorithm, quota, match, anonymous }: Rule): string {
  const parts = [`${limit} per ${period / 1e6} s by ${by}, ${algorithm}`]
  if (quota.burst !== limit) parts.push(`burst ${quota.burst}`)
  if (quota.cost !== 1) parts.push(`cost ${quota.cost}`)
  if (match.methods) parts.push([...match.methods].join('|'))
  if (match.url) parts.push(`${match.url.hostname === '*' ? '' : match.url.hostname}${match.url.pathname}`)
  if (match.plans) parts.push(`plan ${match.plans.join('|')}`)
  if (anonymous) parts.push('anonymous too')
  return parts.join(', ')
}
