/** `npx sluicegate build`: checks the config, and compiles it to src/built/. wrangler runs this command before it bundles the Worker. */
import { Command } from 'commander'
import type { Config } from '../../config/compile.ts'
import { mistakeText } from '../../config/config-error.ts'
import { buildWorker } from '../build-worker.ts'
import { shortPath } from '../config-lines.ts'
import { projectWith } from '../project.ts'
import { environmentWarning } from './environment-reads.ts'
import { withExamples } from './help.ts'
import type { FileLoader } from './load-config.ts'

export function buildCommand(load: FileLoader): Command {
  const command = new Command('build')
    .summary('compile the config for the Worker')
    .description(
      'Check the config, and compile it to src/built/: the scripts that the Worker runs in the store, and for limits by name the scripts and the class of their service binding. wrangler runs this before it bundles the Worker.',
    )
    .argument('[file]', "config file (default: the project's sluice.config.ts)")
    .action(async (file?: string) => {
      const config = await load(file)
      for (const warning of config.environmentReads.map(environmentWarning)) {
        console.error(`Warning: ${mistakeText(warning, shortPath(config.file))}`)
      }
      // The project of the file that was read, because the Worker contains that config.
      buildWorker(config, projectWith(config.file))
      console.log(`Built ${whatIsBuilt(config)}.`)
    })
  return withExamples(command, 'build')
}

function whatIsBuilt({ rules, limits, origin }: Config): string {
  const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`
  const named = `${counted(limits.size, 'limit')} by name`
  if (rules.length === 0 && !origin && limits.size > 0) return `the scripts for ${named}`
  const count = new Set(rules.map(({ name }) => name)).size
  const counts = count === 0 ? 'a config without rules' : counted(count, 'rule')
  return `the Worker's scripts for ${counts}${limits.size === 0 ? '' : ` and ${named}`}`
}
