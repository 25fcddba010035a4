/** `npx sluice build`: checks the config, and writes what is made of it before anything runs. wrangler runs it before it bundles. */
import { resolve } from 'node:path'
import { Command } from 'commander'
import { buildWorker } from '../build-worker.ts'
import { loadConfig } from './load-config.ts'

export function buildCommand(): Command {
  return new Command('build')
    .description(
      'Check the config, and write what the Worker carries of it, and the scripts of its limits by name (src/built/). wrangler runs this.',
    )
    .argument('[file]', 'another config file')
    .action(async (file?: string) => {
      const config = await loadConfig(file && resolve(file))
      buildWorker(config)
      const count = new Set(config.rules.map(({ name }) => name)).size
      const limits = config.limits.size
      const named =
        limits === 0 ? '' : `, and those of ${limits === 1 ? '1 limit' : `${limits} limits`} by name`
      console.log(`Built the Worker's scripts for ${count === 1 ? '1 rule' : `${count} rules`}${named}.`)
    })
}
