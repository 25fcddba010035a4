/** The doc comments above the settings, as an editor shows them: read from the types in src/config. */
import { fileURLToPath } from 'node:url'
import {
  type InterfaceDeclaration,
  type JSDoc,
  type Node,
  type PropertySignatureDeclaration,
  SyntaxKind,
  type TypeAliasDeclaration,
  type TypeNode,
} from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import { API } from 'typescript/unstable/sync'

/** What is said of the members of one object type; of a union there is one for each of its types. */
export type Shape = ReadonlyMap<string, Member>

export interface Member {
  /** Without line breaks; empty where nothing is said. */
  comment: string
  /** The text of its type, as in `'gcra' | 'token-bucket'`. */
  type: string
  /** Of an object, or of a list or a record of objects: what is said of those. */
  shapes(): readonly Shape[]
}

type Declaration = InterfaceDeclaration | TypeAliasDeclaration

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** @returns the shapes of a type that is declared in a file of src/config */
export function readDocComments(): (file: string, type: string) => readonly Shape[] {
  const api = new API({ cwd: ROOT })
  try {
    const snapshot = api.updateSnapshot({ openProjects: [`${ROOT}tsconfig.json`] })
    const { program } = snapshot.getProjects()[0]!
    const files = new Map<string, Map<string, Declaration>>()
    for (const path of program.getSourceFileNames()) {
      const [, file] = /\/src\/config\/(?:check\/)?([\w-]+)\.ts$/.exec(path) ?? []
      if (file) files.set(file, declarationsOf(program.getSourceFile(path)!))
    }
    return (file, type) => shapesOfDeclaration(type, file)

    function shapesOfDeclaration(name: string, file: string): readonly Shape[] {
      // A type that is imported has a name that no other has.
      const home = files.get(file)?.has(name)
        ? file
        : [...files.keys()].find(key => files.get(key)!.has(name))
      const declaration = home && files.get(home)!.get(name)
      if (!declaration) return []
      if (is.isTypeAliasDeclaration(declaration)) return shapesOf(declaration.type, home)
      const inherited = (declaration.heritageClauses ?? []).flatMap(({ types }) =>
        types.flatMap(({ expression }) => shapesOfDeclaration(expression.getText(), home)),
      )
      return [shape(declaration.members, home), ...inherited]
    }

    function shapesOf(type: TypeNode | undefined, file: string): readonly Shape[] {
      if (!type) return []
      if (is.isTypeLiteralNode(type)) return [shape(type.members, file)]
      if (is.isParenthesizedTypeNode(type)) return shapesOf(type.type, file)
      if (is.isArrayTypeNode(type)) return shapesOf(type.elementType, file)
      if (is.isUnionTypeNode(type) || is.isIntersectionTypeNode(type)) {
        return type.types.flatMap(part => shapesOf(part, file))
      }
      if (!is.isTypeReferenceNode(type)) return []
      const name = type.typeName.getText()
      return name === 'Record' ? shapesOf(type.typeArguments?.[1], file) : shapesOfDeclaration(name, file)
    }

    function shape(members: readonly Node[], file: string): Shape {
      const properties = members.filter(is.isPropertySignatureDeclaration)
      return new Map(
        properties.map(property => [
          property.name.getText(),
          {
            comment: commentOf(property),
            type: property.type?.getText() ?? '',
            shapes: () => shapesOf(property.type, file),
          },
        ]),
      )
    }
  } finally {
    api.close()
  }
}

function declarationsOf(file: Node): Map<string, Declaration> {
  const found = new Map<string, Declaration>()
  file.forEachChild(node => {
    if (is.isInterfaceDeclaration(node) || is.isTypeAliasDeclaration(node)) found.set(node.name.text, node)
  })
  return found
}

function commentOf({ jsDoc }: PropertySignatureDeclaration): string {
  const last = jsDoc?.at(-1)
  if (last?.kind !== SyntaxKind.JSDoc) return ''
  return ((last as JSDoc).comment ?? []).map(({ text }) => text).join('')
}
