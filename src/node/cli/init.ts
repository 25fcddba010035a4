/** `npx sluicegate init [folder]`: a project of one's own. `npm create sluicegate` runs it. */
import { relative } from 'node:path'
import { Command } from 'commander'
import { initProject } from '../init.ts'

export function initCommand(): Command {
  return new Command('init')
    .description('Make a project: sluice.config.ts, wrangler.toml, package.json and the entry of the Worker.')
    .argument('[folder]', 'empty, or new', '.')
    .action(async (folder: string) => {
      const root = initProject(folder)
      const there = relative(process.cwd(), root)
      console.log(`Made a gateway in ${root}. Next:
${there ? `    cd ${there}\n` : ''}    npm install
    npm start`)
    })
}
