/** `npx sluicegate init [folder]`: a project of one's own. `npm create sluicegate` runs it. */
import { relative } from 'node:path'
import { Command } from 'commander'
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
      const root = initProject(folder)
      const there = relative(process.cwd(), root)
      const commands = [...(there ? [`cd ${there}`] : []), ...firstCommands(root, packageSource())]
      console.log(
        `Created a gateway in ${root}. Next steps:\n${commands.map(each => `    ${each}`).join('\n')}`,
      )
    })
  return withExamples(command, 'init', 'init my-gateway')
}
