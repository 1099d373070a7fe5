package cli

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/machines"
)

// productName is the name of the program in texts; a program of another name with this package has its own there.
const productName = "rdmalab"

// hints rewrites the commands that a text tells the user to type, like `rdmalab logs cn0`, so that they do what
// the text says when they are typed: they name the program that runs, and the rack, if a command without --rack
// would mean another one.
type hints struct {
	root    *cobra.Command
	program string     // the name of the program
	rack    string     // the rack that commands must name; "" if none need to
	far     *Elsewhere // the rack, if it is elsewhere
}

// rackless are the commands that have no rack, or whose rack is chosen otherwise.
var rackless = []string{"completion", "compose", "doctor", "dump", "help", "image", "report", "sim", "validate", "version"}

// commandsIn matches a command in backquotes, with what precedes the program's name and what follows it.
var commandsIn = regexp.MustCompile("`((?:sudo )?(?:[A-Z_]+=\\S+ )*)" + productName + "( [^`\n]*)?`")

// hintsOf returns the hints for texts of a command.
func hintsOf(cmd *cobra.Command) hints {
	if e := elsewhereOf(cmd.Root()); e != nil {
		return hints{root: cmd.Root(), program: e.Program, rack: e.Rack.Name, far: e}
	}
	h := hints{root: cmd.Root(), program: programCalled(os.Args)}
	if name, err := h.root.PersistentFlags().GetString("rack"); err == nil && name != cmp.Or(os.Getenv(rackEnv), defaultRack) {
		h.rack = name
	}
	return h
}

// programCalled returns what a user types to call the program again, by its command line: its name, or the path
// by which it was started, if the shell does not find it by its name. An absolute path of the product itself is
// that of an alias, or of a program that calls it: texts have its name.
func programCalled(args []string) string {
	if len(args) == 0 {
		return productName
	}
	name := filepath.Base(args[0])
	if os.Getenv(rackfile.EnvSlice) != "" { // another machine's client has called it so, and strips the name from errors
		return productName
	}
	if strings.HasSuffix(name, ".test") || strings.Contains(args[0], "/go-build") || name == "." || name == "/" {
		return productName // a test, or `go run`, whose program has no lasting name
	}
	if typed := args[0]; typed != name && (name != productName || !filepath.IsAbs(typed)) && !inPath(name, typed) {
		return quoted(typed)
	}
	return name
}

// quoted makes one word of a shell of a path.
func quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-") == "" {
		return path
	}
	return machines.Quote(path)
}

// inPath reports whether the shell finds the file of a path by a name.
func inPath(name, path string) bool {
	found, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	a, err := os.Stat(found)
	b, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// text returns a text with its commands rewritten.
func (h hints) text(text string) string {
	if h.far != nil {
		return h.far.text(h.root, text)
	}
	if h.program == productName && h.rack == "" {
		return text
	}
	return h.named(commandsIn.ReplaceAllStringFunc(text, func(command string) string {
		m := commandsIn.FindStringSubmatch(command)
		return "`" + m[1] + h.program + h.withRack(m[2]) + "`"
	}))
}

// lines is text, and also rewrites commands that have a line of their own, like those of an exercise.
func (h hints) lines(text string) string {
	if h.far == nil && h.rack != "" {
		text = commandLines.ReplaceAllStringFunc(text, func(line string) string {
			m := commandLines.FindStringSubmatch(line)
			return m[1] + productName + h.withRack(m[2])
		})
	}
	return h.text(text)
}

// commandLines matches a line with a command alone, which is indented, or behind the words "A hint:".
var commandLines = regexp.MustCompile("(?m)^( +|A hint: )" + productName + "( .*)$")

// withRack puts --rack behind the words that name a command, unless it is there already. args begins with a blank,
// or is "".
func (h hints) withRack(args string) string {
	words := strings.Split(args, " ")[1:]
	if h.rack == "" || args == "" || slices.Contains(words, "--rack") || slices.Contains(words, "--help") || slices.Contains(rackless, words[0]) {
		return args
	}
	at, n := h.root, 0
	for ; n < len(words); n++ {
		i := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == words[n] || c.HasAlias(words[n]) })
		if i < 0 {
			break
		}
		at = at.Commands()[i]
	}
	if n == 0 {
		return args // no command: a flag, or a word of prose
	}
	return " " + strings.Join(slices.Insert(words, n, "--rack", h.rack), " ")
}

// name returns the name of the program, without the path by which a user calls it.
func (h hints) name() string {
	if h.far != nil {
		return h.far.Name
	}
	return filepath.Base(strings.Trim(h.program, "'"))
}

// error returns the text of an error.
func (h hints) error(err error) string { return h.name() + ": " + h.text(err.Error()) }

// hintWriter rewrites the commands in texts that are written to w. One call of Write has whole lines.
type hintWriter struct {
	w io.Writer
	h hints
}

func (w hintWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.h.text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hinted returns a writer for a command's text, which rewrites the commands in it.
func hinted(cmd *cobra.Command, w io.Writer) io.Writer { return hintWriter{w, hintsOf(cmd)} }

// named returns a text of help with the program's own name in the commands that it shows. Other words stay: a
// help text also tells of files, labels and variables of that name.
func (h hints) named(text string) string {
	if h.far != nil {
		return h.far.text(h.root, text)
	}
	if h.program == productName {
		return text
	}
	return namedIn.ReplaceAllStringFunc(text, func(found string) string {
		m := namedIn.FindStringSubmatch(found)
		if w := m[2]; !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "[") && w != "COMMAND" &&
			!slices.ContainsFunc(h.root.Commands(), func(c *cobra.Command) bool { return c.Name() == w || c.HasAlias(w) }) {
			return found
		}
		return m[1] + h.program + " " + m[2]
	})
}

// namedIn matches the program's name with the word behind it.
var namedIn = regexp.MustCompile(`(^|[^\w./-])` + productName + ` (\[|[\w-]+)`)

// ownName makes the help of all commands below root name the program that runs.
func ownName(root *cobra.Command) {
	h := hintsOf(root)
	if h.program == productName {
		return
	}
	root.SetVersionTemplate(h.name() + " {{.Version}}\n")
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text strings.Builder
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = io.WriteString(out, h.named(text.String())) // as cobra, which prints help without an error
	})
}
