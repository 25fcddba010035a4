/** `npx sluicegate init [folder]`: a project of one's own. `npm create sluicegate` runs it. */
import { relative } from 'node:path'
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { initProject } from '../init.ts'
import { firstCommands, packageSource } from '../package-source.ts'
import { withExamples } from './help.ts'

export function initCommand(): Command {
  const command = new Command('init')
    .summary('create a project')
    .description(
      "Create a project: sluice.config.ts, wrangler.toml, package.json and the Worker's entry file.",
    )
    .argument('[folder]', 'new or empty folder', '.')
    .action(async (folder: string) => {
      mustHaveNode(process.env.npm_config_user_agent)
      const root = initProject(folder)
      const there = relative(process.cwd(), root)
      const commands = [...(there ? [`cd ${there}`] : []), ...firstCommands(root, packageSource())]
      console.log(
        `Created a gateway in ${root}. Next steps:\n${commands.map(each => `    ${each}`).join('\n')}`,
      )
    })
  return withExamples(command, 'init', 'init my-gateway')
}

/** What a project needs: `engines` of package.json. */
const NEEDED = [22, 18] as const

/**
 * Checks the Node that will run the new project. In a clone, npx runs this command on a Node of the clone.
 * @param agent of npm, as in `npm/11.6.2 node/v24.1.0 linux x64`; other package managers write it in the same way
 * @throws AdminError `usage` before anything is written
 */
export function mustHaveNode(agent = ''): void {
  const [, version, major, minor] = /\bnode\/v((\d+)\.(\d+)\S*)/.exec(agent) ?? []
  if (version === undefined) return
  const [neededMajor, neededMinor] = NEEDED
  if (Number(major) > neededMajor || (Number(major) === neededMajor && Number(minor) >= neededMinor)) return
  throw new AdminError(
    'usage',
    `A project needs Node ${NEEDED.join('.')} or newer, and this machine has Node ${version}. Install a newer one first: https://nodejs.org. Nothing was written.`,
  )
}
