/** `.dev.vars`, the file of variables and secrets that `wrangler dev` gives to the Worker. `npm start` does the same. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import type { Project } from './project.ts'

type InProject = Pick<Project, 'root'>

export const devVarsFile = ({ root }: InProject): string => join(root, '.dev.vars')

/** The variables of the shell, and those of the file (if it exists) that the shell does not have. */
export function readLocalVariables(project: InProject): NodeJS.Dict<string> {
  return { ...devVars(project), ...process.env }
}

/** `npm start` has a store and an origin of its own. */
const SET_BY_START = ['UPSTASH_REDIS_REST_URL', 'UPSTASH_REDIS_REST_TOKEN', 'ORIGIN_URL']

/**
 * The variables that the Worker gets: all those of the file, because hooks can read any of them, and those that the config names.
 *
 * @param named by the config; for these, the shell comes first
 */
export function variablesOfWorker(project: InProject, named: readonly string[]): Record<string, string> {
  const local = readLocalVariables(project)
  const variables = { ...devVars(project), ...Object.fromEntries(named.map(name => [name, local[name]])) }
  const given = Object.entries(variables).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !SET_BY_START.includes(entry[0]),
  )
  return Object.fromEntries(given)
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
