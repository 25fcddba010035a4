/** `.dev.vars`, the file of secrets that `wrangler dev` reads. `npm start` takes from it what the config asks for. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import type { Project } from './project.ts'

type InProject = Pick<Project, 'root'>

export const devVarsFile = ({ root }: InProject): string => join(root, '.dev.vars')

/** The variables of the shell, and those of the file (if it exists) that the shell does not have. */
export function variablesHere(project: InProject): NodeJS.Dict<string> {
  return { ...devVars(project), ...process.env }
}

function devVars(project: InProject): NodeJS.Dict<string> {
  let text: string
  try {
    text = readFileSync(devVarsFile(project), 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {}
    throw error
  }
  return parseEnv(text)
}
