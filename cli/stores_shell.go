package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmalab/rdmalab/store"
)

// maxLine bounds a line of the shell in bytes. A value of the largest size fits into it.
const maxLine = 128 << 10

func shellWords(s *store.Store) (out [][2]string) {
	for _, op := range opsOf(s) {
		out = append(out, [2]string{op.use, op.word})
	}
	if s.Scans {
		out = append(out, [2]string{"scan KEY", "list keys from there on"})
	}
	if s.Commands.Stat.New != nil {
		out = append(out, [2]string{"stat", s.Commands.StatWord})
	}
	if s.Commands.CheckWord != "" {
		out = append(out, [2]string{"check", s.Commands.CheckWord})
	}
	return append(out, [2]string{"help", "this list"}, [2]string{"exit", "leave; so does the end of the input"})
}

func shellCmd(s *store.Store) *cobra.Command {
	var from string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "shell",
		Short: s.Commands.ShellShort,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runShell(cmd, shell{s.Name + "> ", shellWords(s)}, func(out, errOut io.Writer, args ...string) error {
				sub := storeCmd(s)
				sub.PersistentFlags().AddFlagSet(cmd.InheritedFlags())
				sub.SilenceUsage, sub.SilenceErrors = true, true
				sub.SetOut(out)
				sub.SetErr(errOut)
				word, _, _ := sub.Find(args[:1]) // runShell passes only words that the store has
				sub.SetArgs(shellArgs(word, args, from, verbose))
				return sub.ExecuteContext(cmd.Context())
			})
		},
	}
	fromFlag(cmd, &from)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print how long each operation took, and its network round trips")
	return cmd
}

// shellArgs returns the command-line arguments for a line of the shell, whose first word names the
// command cmd. It passes on the shell's flags --from and --verbose if cmd has these flags, too.
func shellArgs(cmd *cobra.Command, args []string, from string, verbose bool) []string {
	out := []string{args[0]}
	if from != "" && cmd.Flags().Lookup("from") != nil {
		out = append(out, "--from", from)
	}
	if verbose && cmd.Flags().Lookup("verbose") != nil {
		out = append(out, "--verbose")
	}
	return append(append(out, "--"), args[1:]...)
}

type shell struct {
	prompt string
	words  [][2]string
}

func runShell(cmd *cobra.Command, sh shell, do func(out, errOut io.Writer, args ...string) error) error {
	read, out, done, err := sh.input(cmd)
	if err != nil {
		return err
	}
	failed := false
	for {
		line, err := read()
		args := splitLine(line)
		if err == nil && len(args) > 0 && (args[0] == "exit" || args[0] == "quit") {
			err = io.EOF
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if err := errors.Join(done(), err); err != nil {
				return err
			}
			if failed {
				return exitCode(1)
			}
			return nil
		}
		switch {
		case len(args) == 0:
		case args[0] == "help":
			for _, w := range sh.words {
				_, _ = fmt.Fprintf(out, "  %-18s %s\n", w[0], w[1])
			}
		case !slices.ContainsFunc(sh.words, func(w [2]string) bool { return strings.Fields(w[0])[0] == args[0] }):
			failed = true
			_, _ = fmt.Fprintf(out, "there is no %.20q; type help\n", args[0])
		default:
			if err := do(out, out, args...); err != nil {
				failed = true
				_, _ = fmt.Fprintln(out, err)
			}
		}
	}
}

// splitLine splits a line into the command, the key, and the rest, which is the value.
func splitLine(line string) []string {
	var out []string
	for line = strings.TrimSpace(line); line != "" && len(out) < 2; {
		word, rest, _ := strings.Cut(line, " ")
		out, line = append(out, word), strings.TrimLeft(rest, " ")
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// input opens the input of the shell: a terminal with line editing, or a pipe. done restores the
// terminal.
func (sh *shell) input(cmd *cobra.Command) (read func() (string, error), out io.Writer, done func() error, err error) {
	file, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		lines := bufio.NewScanner(cmd.InOrStdin())
		lines.Buffer(nil, maxLine)
		n := 0
		read = func() (string, error) {
			n++
			switch {
			case lines.Scan():
				return lines.Text(), nil
			case errors.Is(lines.Err(), bufio.ErrTooLong):
				return "", fmt.Errorf("line %d is longer than %d bytes: neither it nor the lines behind it were executed", n, maxLine)
			case lines.Err() != nil:
				return "", fmt.Errorf("line %d: %w", n, lines.Err())
			}
			return "", io.EOF
		}
		return read, cmd.OutOrStdout(), func() error { return nil }, nil
	}
	state, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, nil, nil, err
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{file, cmd.OutOrStdout()}, sh.prompt)
	t.AutoCompleteCallback = sh.complete
	return t.ReadLine, t, func() error { return term.Restore(int(file.Fd()), state) }, nil
}

func (sh *shell) complete(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' || pos != len(line) || strings.Contains(line, " ") {
		return line, pos, false
	}
	var found []string
	for _, w := range sh.words {
		if name := strings.Fields(w[0])[0]; strings.HasPrefix(name, line) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return line, pos, true
	}
	return found[0] + " ", len(found[0]) + 1, true
}
