// Names of files in commands.

/**
 * A word of a command line; a name that a shell would take apart is quoted, and one that nobody can
 * type is FILE.
 */
export function shellWord(name: string): string {
	if (!/^[\p{L}\p{N}\p{P}\p{S} ]{1,255}$/u.test(name)) return "FILE";
	return /^[\w.+@%:=][\w.+@%:=-]*$/.test(name)
		? name
		: `'${name.startsWith("-") ? "./" : ""}${name.replaceAll("'", "'\\''")}'`;
}
