/** The doc comments of the settings, as an editor shows them: the type checker reads them from the types in src. */
import { fileURLToPath } from 'node:url'
import type { Node } from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import { API, type Checker, type Type, type TypeReference } from 'typescript/unstable/sync'

/** The members of one object type, by name, with their doc comments. A union has a shape for each of its types. */
export type Shape = ReadonlyMap<string, Member>

export interface Member {
  /** Empty where there is no comment. */
  comment: string
  /** The text of its type, as in `"gcra"`. */
  type: string
  /** If the member is an object, or a list or a record of objects: the shapes of these objects. */
  shapes(): readonly Shape[]
}

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))

/**
 * @param use gets the shapes of a type that a file of src exports, as in `('config/check/schema', 'ConfigInput')`; they can
 *   be read until it returns
 */
export function withDocComments<T>(
  use: (shapesOf: (file: string, type: string) => readonly Shape[]) => T,
): T {
  const api = new API({ cwd: ROOT })
  try {
    const [project] = api.updateSnapshot({ openProjects: [`${ROOT}tsconfig.json`] }).getProjects()
    const { program, checker } = project!
    return use((file, type) => {
      const name = nameIn(program.getSourceFile(`${ROOT}src/${file}.ts`)!, type)
      return shapesOf(checker, checker.getDeclaredTypeOfSymbol(checker.getSymbolAtLocation(name)!))
    })
  } finally {
    api.close()
  }
}

function nameIn(file: Node, type: string): Node {
  let found: Node | undefined
  file.forEachChild(node => {
    const isType = is.isInterfaceDeclaration(node) || is.isTypeAliasDeclaration(node)
    if (isType && node.name.text === type) found = node.name
  })
  if (!found) throw new Error(`There is no type ${type}.`)
  return found
}

function shapesOf(checker: Checker, type: Type | undefined): readonly Shape[] {
  if (!type) return []
  if (type.isUnionType()) return type.getTypes().flatMap(part => shapesOf(checker, part))
  if (checker.isArrayType(type)) return shapesOf(checker, checker.getTypeArguments(type as TypeReference)[0])
  if (!type.isObjectType() && !type.isIntersectionType()) return []
  const [record] = checker.getIndexInfosOfType(type)
  if (record) return shapesOf(checker, record.valueType)
  const members = checker.getPropertiesOfType(type).map(property => {
    const own = checker.getTypeOfSymbol(property)
    const member: Member = {
      comment: property.getDocumentationComment(checker),
      type: own ? checker.typeToString(own) : '',
      shapes: () => shapesOf(checker, own),
    }
    return [property.name, member] as const
  })
  return [new Map(members)]
}
