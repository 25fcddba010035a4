/** `npx sluicegate build`: checks the config, and writes what is made of it before anything runs. wrangler runs it before it bundles. */
import { Command } from 'commander'
import type { Config } from '../../config/compile.ts'
import { buildWorker } from '../build-worker.ts'
import { projectWith } from '../project.ts'
import { environmentWarning } from './environment-reads.ts'
import type { FileLoader } from './load-config.ts'

export function buildCommand(load: FileLoader): Command {
  return new Command('build')
    .description(
      'Check the config, and write what the Worker carries of it, and the scripts of its limits by name (src/built/). wrangler runs this.',
    )
    .argument('[file]', 'another config file')
    .action(async (file?: string) => {
      const config = await load(file)
      for (const { path, message } of config.environmentReads.map(environmentWarning)) {
        console.error(`Warning: ${path} ${message}`)
      }
      // Of the file that was read: the Worker carries that one.
      buildWorker(config, projectWith(config.file))
      console.log(`Built ${whatIsBuilt(config)}.`)
    })
}

function whatIsBuilt({ rules, limits, origin }: Config): string {
  const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`
  const named = `${counted(limits.size, 'limit')} by name`
  if (rules.length === 0 && !origin) return `the scripts of ${named}`
  const count = new Set(rules.map(({ name }) => name)).size
  return `the Worker's scripts for ${counted(count, 'rule')}${limits.size === 0 ? '' : `, and those of ${named}`}`
}
