package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/units"
)

// exitUsage is the exit status for a wrong command line. The command has then done nothing. A
// command that has begun exits with 1 if it fails, or if its verdict is negative.
const exitUsage = 2

// badUse returns an error about the command line. Its arguments are those of fmt.Errorf.
func badUse(format string, args ...any) error { return store.BadUse(format, args...) }

// asUse makes err an error about the command line. nil stays nil.
func asUse(err error) error {
	if err == nil {
		return nil
	}
	return badUse("%w", err)
}

func isUse(err error) bool { return store.IsUse(err) }

// execute runs the command line. An error before a command begins is an error about the command
// line; its message says how to get help.
func execute(ctx context.Context, root *cobra.Command) error {
	began := false
	noteRuns(root, &began)
	cmd, err := root.ExecuteContextC(ctx)
	var answer *control.Error
	switch {
	case err == nil, isUse(err):
		return err
	case errors.Is(err, rack.ErrNoHost), errors.As(err, &answer) && answer.Status == http.StatusBadRequest:
		return asUse(err)
	case began:
		return err
	}
	text := plain(cmd, err.Error())
	if !strings.Contains(text, "--help`") {
		if !strings.HasSuffix(text, "?") {
			text += ";"
		}
		text += " see `" + cmd.CommandPath() + " --help`"
	}
	return badUse("%s", text)
}

// plain converts a message of the command-line library into one plain sentence.
func plain(cmd *cobra.Command, text string) string {
	text, _, _ = strings.Cut(text, "\n\nDid you mean this?")
	text = strings.Replace(text, ` for "rdmalab"`, "", 1)
	if list, ok := strings.CutPrefix(text, "required flag(s) "); ok {
		list = strings.TrimSuffix(list, " not set")
		var flags []string
		for name := range strings.SplitSeq(list, ", ") {
			name = strings.Trim(name, `"`)
			what := "--" + name
			if f := cmd.Flags().Lookup(name); f != nil {
				usage, _, _ := strings.Cut(f.Usage, " (")
				usage, _, _ = strings.Cut(usage, "; ")
				what += " (" + usage + ")"
			}
			flags = append(flags, what)
		}
		text = "give " + strings.Join(flags, " and ")
	}
	if word, ok := strings.CutPrefix(text, "unknown command "); ok {
		word, _, _ = strings.Cut(strings.TrimPrefix(word, `"`), `"`)
		if meant := commandMeant(cmd.Root(), word); meant != "" {
			return text + "; " + meant
		}
	}
	return text
}

// noteRuns changes cmd and every command below it: each sets *began when it begins to run.
func noteRuns(cmd *cobra.Command, began *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		noteRuns(c, began)
	}
}

// explainAll changes all commands below cmd: they refuse unknown subcommands, and their errors
// about arguments list the arguments that they expect.
func explainAll(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		refuseStrangers(c)
		explainArgs(c)
		explainAll(c)
	}
}

// explainArgs changes a command: its errors about the number of arguments list the expected
// arguments.
func explainArgs(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || isUse(err) { // the command explains the error itself
			return err
		}
		what := "too many arguments"
		more := args
		for range most {
			if more = append(more[:len(more):len(more)], "x"); check(cmd, more) == nil {
				what = "too few arguments"
			}
		}
		switch {
		case cmd.HasAvailableSubCommands() && len(args) > 0 && check(cmd, []string{"x"}) != nil:
			what = strangers(cmd, args[0])
		case check(cmd, nil) == nil && check(cmd, []string{"x"}) != nil:
			what = fmt.Sprintf("%q is too much, %s takes no arguments", args[0], cmd.CommandPath())
		}
		write := useOf(cmd)
		if instead := argumentsMeant(cmd, args); instead != "" {
			write = instead
		}
		return badUse("%s; write: %s (see `%s --help`)", what, write, cmd.CommandPath())
	}
}

// most is the largest number of arguments that any command requires.
const most = 3

func useOf(cmd *cobra.Command) string {
	above := ""
	if cmd.HasParent() {
		above = cmd.Parent().CommandPath() + " "
	}
	return above + cmd.Use
}

// refuseStrangers changes a command that only groups subcommands: it refuses an unknown subcommand.
// The library would print help and exit with 0.
func refuseStrangers(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
}

// refuseTopics changes the command help: it refuses unknown commands. The library would print a
// message and exit with 0.
func refuseTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	cmd, _, err := root.Find([]string{"help"})
	if err != nil || cmd.Name() != "help" {
		return // the library has no such command
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 && about.HasAvailableSubCommands() {
			err = about.ValidateArgs(rest)
		}
		return err // execute adds how to get help
	}
}

// onlyGroups reports whether a command has subcommands and takes no arguments itself.
func onlyGroups(cmd *cobra.Command) bool {
	return cmd.HasAvailableSubCommands() && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil
}

// strangers returns the error text for an unknown subcommand, which lists the known ones.
func strangers(cmd *cobra.Command, name string) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	meant := ""
	if figure, ok := strings.CutPrefix(strings.ToLower(name), "fig"); ok && cmd.Name() == "experiment" {
		if figure = strings.TrimLeft(figure, "ure-_."); figure != "" {
			meant = fmt.Sprintf(", figures of a paper are swordbox-figures --figures %s and others", figure)
		}
	}
	near := nearest.Meant(name, names)
	if meant == "" && near != "" {
		return fmt.Sprintf("there is no %s %.40q; %sthere are: %s", cmd.CommandPath(), name, near, strings.Join(names, " "))
	}
	return fmt.Sprintf("there is no %s %.40q%s, there are: %s", cmd.CommandPath(), name, meant, strings.Join(names, " "))
}

// flagError makes the library's errors about the values of flags readable.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case isUse(err): // the flag's own error already says which values it accepts
		text = errors.Unwrap(err).Error() + otherMeaning(cmd, err)
	case errors.As(err, &unknown) && len(cmd.Flags().Args()) > 0 && onlyGroups(cmd):
		text = strangers(cmd, cmd.Flags().Args()[0]) // the flag is that of a command below
	case errors.As(err, &unknown):
		flag := spelled(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames())
		text = "there is no flag " + flag
		if write := flagMeant(cmd, flag); write != "" {
			text += "; " + either(strings.HasPrefix(write, "leave it out"), "", "write ") + write
		}
	case errors.As(err, &missing):
		f := missing.GetFlag()
		text = spelled(missing.GetSpecifiedName(), missing.GetSpecifiedShortnames()) + " needs a value: " + f.Usage
	}
	for _, t := range []struct{ bad, good string }{
		{"time: ", "it is no duration; write it like 500ms, 10s or 1m30s"},
		{"strconv.ParseBool", "it is neither true nor false"},
		{"strconv.ParseFloat", "it is no number"},
		{"value out of range", "it is out of range"},
		{"strconv.ParseInt", "it is no whole number"},
		{"strconv.Atoi", "it is no list of whole numbers like 1,8,64"},
		{"strconv.ParseUint", "it is no whole number of 0 or more"},
	} {
		if head, tail, ok := strings.Cut(text, " flag: "); ok && strings.Contains(tail, t.bad) {
			if short, name, ok := strings.Cut(head, ` for "-`); ok { // both names of the flag: -n, --iters
				if _, long, ok := strings.Cut(name, ", "); ok {
					head = short + ` for "` + long
				}
			}
			text = strings.Replace(head, "invalid argument ", "", 1) + ": " + t.good + inDigits(head)
			break
		}
	}
	return badUse("%s; see `%s --help`", text, cmd.CommandPath())
}

// otherMeaning returns what to write for a flag that has another meaning in another tool, whose value was refused
// here; "" if the tables have none.
func otherMeaning(cmd *cobra.Command, err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || invalid.GetFlag().Shorthand == "" {
		return ""
	}
	write := tableMeant(cmd, "-"+invalid.GetFlag().Shorthand)
	return either(write == "", "", "; write "+write)
}

// inDigits returns "; write 10000" if the value in the text of an error is a whole number with a suffix,
// 10k or 1e4, and "" otherwise.
func inDigits(text string) string {
	_, value, _ := strings.Cut(text, `"`)
	value, _, _ = strings.Cut(value, `"`)
	n, err := units.ParseOps(value)
	if f, ferr := strconv.ParseFloat(value, 64); ferr == nil && f >= 0 && f < 1e15 && f == math.Trunc(f) && strings.ContainsAny(value, "eE") {
		n, err = int64(f), nil
	}
	if err != nil || strconv.FormatInt(n, 10) == value || strings.Trim(value, "0123456789.kMGeE") != "" || !strings.ContainsAny(value, "kMGeE") {
		return ""
	}
	return "; write " + strconv.FormatInt(n, 10)
}

// spelled returns a flag as it was typed: --name, or -n from a group of short names.
func spelled(name, group string) string {
	if group != "" && len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
