/** Reads sluice.config.ts the way the Worker does at its start. */
import { resolve } from 'node:path'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { CheckedConfig } from '../../ops/context.ts'
import { withInput } from '../../ops/overrides.ts'
import { withLines } from '../config-lines.ts'
import { importConfig } from '../import-config.ts'
import { findProject } from '../project.ts'
import { noteEnvironmentReads } from './environment-reads.ts'

export type LoadedConfig = CheckedConfig

export interface LoadedFile extends LoadedConfig {
  file: string
  /** Variables of the environment that the file reads, which the Worker does not have. */
  environmentReads: readonly string[]
}

/** How a command gets the config of the deployment. */
export type ConfigLoader = () => Promise<LoadedConfig>

/** Like `ConfigLoader`, but for any config file. Default: the file of the project. */
export type FileLoader = (file?: string) => Promise<LoadedFile>

/**
 * @param file relative to the working directory; default: that of the project
 * @throws ConfigError with every mistake; ConfigFileError when the file cannot be loaded
 */
export async function loadConfig(file: string = findProject().configFile): Promise<LoadedFile> {
  const path = resolve(file)
  const { loaded: module, reads } = await noteEnvironmentReads(() => importConfig(path))
  try {
    const config = checkedConfig(module.default)
    return { ...withInput(config, module.default as ConfigInput), file: path, environmentReads: reads }
  } catch (error) {
    throw withLines(error, path)
  }
}
