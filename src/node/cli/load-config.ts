/** Reads sluice.config.ts the way the Worker does at its start. */
import { basename } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'

const CONFIG_FILE = new URL('../../../sluice.config.ts', import.meta.url)

export interface LoadedConfig extends Config {
  /** As it is written. */
  input: ConfigInput
}

/** How a command gets the config of the deployment. */
export type ConfigLoader = () => Promise<LoadedConfig>

/** @throws ConfigError with every mistake; Error when the file cannot be read, with the line where that is known */
export async function loadConfig(file: string = fileURLToPath(CONFIG_FILE)): Promise<LoadedConfig> {
  const module = await import(pathToFileURL(file).href).catch(error => {
    throw new Error(`${placeOf(error, file)}: ${error instanceof Error ? error.message : String(error)}`)
  })
  return { ...checkedConfig(module.default), input: module.default }
}

/** The file, and the line: Node begins the stack of a syntax error with it, and has it on top of any other. */
function placeOf(error: unknown, file: string): string {
  const stack = error instanceof Error ? (error.stack ?? '') : ''
  const name = basename(file)
  const at = stack.indexOf(`${name}:`)
  const line = at < 0 ? undefined : /^\d+/.exec(stack.slice(at + name.length + 1))?.[0]
  return line === undefined ? file : `${file}:${line}`
}
