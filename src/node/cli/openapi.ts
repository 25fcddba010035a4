/** `npx sluicegate openapi`: the OpenAPI document of the routes that a gateway with this config serves. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import { openApiDocument } from '../../set-ups/api/openapi.ts'
import { API_OPERATIONS } from '../../set-ups/api/openapi-operations.ts'
import { routesServedBy } from '../../set-ups/api/routes.ts'
import { withExamples } from './help.ts'
import type { FileLoader } from './load-config.ts'

export function openapiCommand(load: FileLoader): Command {
  const command = new Command('openapi')
    .summary('print the OpenAPI document of the HTTP API')
    .description(
      'Print the OpenAPI document of the HTTP API, with the routes that a gateway with this config serves: to generate a client, or to serve it as a static file.',
    )
    .action(async () => {
      const config = await load(undefined)
      if (!config.api) throw new AdminError('refused', 'The config has no HTTP API. Add api: {} to it.')
      console.log(
        JSON.stringify(openApiDocument(routesServedBy(config), Object.values(API_OPERATIONS)), null, 2),
      )
    })
  return withExamples(command, 'openapi')
}
