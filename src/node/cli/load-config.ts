/** Reads sluice.config.ts the way the Worker does at its start. */
import { fileURLToPath, pathToFileURL } from 'node:url'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'

const CONFIG_FILE = new URL('../../../sluice.config.ts', import.meta.url)

export interface LoadedConfig extends Config {
  /** As it is written. */
  input: ConfigInput
}

/** @throws ConfigError with every mistake; Error when the file cannot be read */
export async function loadConfig(file: string = fileURLToPath(CONFIG_FILE)): Promise<LoadedConfig> {
  const module = await import(pathToFileURL(file).href)
  return { ...checkedConfig(module.default), input: module.default }
}
