/** Every edge that runs here replies as the gateway does. test/package runs the same list on Bun and Deno, which it installs. */
import { EDGES, installedRuntimes } from '../support/edges.ts'
import { describeEdges } from './same-replies.ts'

describeEdges({ ...EDGES, ...installedRuntimes() })
