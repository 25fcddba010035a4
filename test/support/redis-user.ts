/** The Redis user that docs/deploy.md recommends for the bridge. */
import { readPage } from './pages.ts'

const [, command = '', ofCluster = ''] =
  /`(ACL SETUSER sluice [^`]+)`[^`]+`([^`]+)`/.exec(readPage('docs/deploy.md')) ?? []

/** The command that makes it: `ACL SETUSER sluice on >PASSWORD …`. */
export const SET_USER = command
/** The same on a node of a Redis Cluster. */
export const SET_USER_OF_CLUSTER = `${command} ${ofCluster}`

export const PASSWORD = / >(\S+)/.exec(SET_USER)![1]!

/** The commands that it may run, in lower case. */
export const GRANTED = [...SET_USER.matchAll(/ \+([a-z|]+)/g)].map(([, command]) => command!)
