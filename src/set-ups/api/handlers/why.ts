/** Why a caller is refused. */
import { whyDocument } from '../../../ops/documents/why.ts'
import { parseWhyTarget, readWhy } from '../../../ops/why.ts'
import { verdictOf } from '../../../ops/why-verdict.ts'
import { parsed } from '../parse-input.ts'
import { invalidInput } from '../problems.ts'
import { adminRoute } from '../route.ts'
import { withoutCommandLine } from '../without-command-line.ts'

const KEY_ID = /^[^/]+\/[0-9a-f]{4,64}$/

export const whyRoutes = [
  adminRoute({
    method: 'GET',
    path: 'why/{caller}',
    scopes: ['stats:read'],
    async run({ store, params }, { config, now }) {
      const target = await parsed('{caller}', () => parseWhyTarget(params.caller!, store))
      if (target.kind === 'key' && !KEY_ID.test(target.text))
        throw invalidInput('{caller}', 'Use the id of the key: a key itself does not belong in a URL.')
      return await withoutCommandLine(async () => {
        const facts = await readWhy(store, config, target, new Date(now()))
        if (facts.peekError) throw facts.peekError
        return whyDocument(facts, verdictOf(facts, config))
      })
    },
  }),
]
