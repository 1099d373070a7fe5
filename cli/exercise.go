package cli

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/topo/exercise"
)

type exerciseFlags struct {
	check   bool
	hint    int
	answers []string
	seed    uint64
}

func exerciseCmd() *cobra.Command {
	var f exerciseFlags
	cmd := &cobra.Command{
		Use:               "exercise [NAME]",
		Short:             "Exercises for a course, which check themselves",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: arguments(words(exerciseNames()...)),
		SuggestFor:        []string{"lesson", "task", "course"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if f.check || f.hint != 0 || len(f.answers) > 0 || cmd.Flags().Changed("seed") {
					return badUse("name the exercise: %s", strings.Join(exerciseNames(), " "))
				}
				return listExercises(cmd)
			}
			e, ok := exercise.Find(args[0])
			if !ok {
				return badUse("there is no exercise %q; %sthere are %s", args[0], nearest.Meant(args[0], exerciseNames()), strings.Join(exerciseNames(), " "))
			}
			return f.run(cmd, e)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.check, "check", false, "check what you have done, and say what is missing")
	fs.IntVar(&f.hint, "hint", 0, "print a hint instead: --hint the first, --hint=2 the second")
	fs.Lookup("hint").NoOptDefVal = "1"
	fs.StringArrayVar(&f.answers, "answer", nil, "with --check: an answer, like lost=17; once for each answer")
	fs.Uint64Var(&f.seed, "seed", 0, "what decides the details of the problem; learners with the same seed have the same (default: by chance)")
	cmd.MarkFlagsMutuallyExclusive("check", "hint", "seed")
	outputFlag(cmd)
	return cmd
}

func exerciseNames() (names []string) {
	for _, e := range exercise.All() {
		names = append(names, e.Name)
	}
	return names
}

// exerciseItem is a line of the list of exercises.
type exerciseItem struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

func listExercises(cmd *cobra.Command) error {
	var list []exerciseItem
	for _, e := range exercise.All() {
		title, err := e.Title()
		if err != nil {
			return err
		}
		list = append(list, exerciseItem{e.Name, title})
	}
	return show(cmd, list, func(out io.Writer, list []exerciseItem) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tTASK") // Flush reports errors
		for _, e := range list {
			fmt.Fprintf(w, "%s\t%s\n", e.Name, e.Title)
		}
		return w.Flush()
	})
}

func (f *exerciseFlags) run(cmd *cobra.Command, e *exercise.Exercise) error {
	answers, err := f.parse(e)
	if err != nil {
		return err
	}
	switch {
	case f.check:
		lab, err := f.lab(cmd, e, false)
		if err != nil {
			return err
		}
		return checkExercise(cmd, lab, answers)
	case f.hint != 0:
		return f.printHint(cmd, e)
	}
	lab, err := f.lab(cmd, e, true)
	if err != nil {
		return err
	}
	seed := f.seed
	if !cmd.Flags().Changed("seed") {
		seed = rand.Uint64N(1 << 32)
	}
	if err := lab.Prepare(cmd.Context(), seed); err != nil {
		return err
	}
	text, err := lab.Text()
	if err != nil {
		return err
	}
	task := fmt.Sprintf("%s\n\n%s\n\nA hint: rdmalab exercise %s --hint (there are %d)", text.Title, text.Task, e.Name, len(text.Hints))
	return say(cmd, "%s", hintsOf(cmd).lines(task))
}

// parse returns the answers by key.
func (f *exerciseFlags) parse(e *exercise.Exercise) (map[string]string, error) {
	if len(f.answers) > 0 && !f.check {
		return nil, badUse("--answer goes with --check")
	}
	answers := make(map[string]string)
	for _, a := range f.answers {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" || value == "" {
			return nil, badUse("--answer %q: write it like KEY=VALUE", a)
		}
		answers[key] = value
	}
	return answers, asUse(e.CheckAnswers(answers))
}

// lab returns the exercise on the rack of the command. If the rack is not up, and prepare is true, it
// brings the built-in rack up.
func (f *exerciseFlags) lab(cmd *cobra.Command, e *exercise.Exercise, prepare bool) (*exercise.Lab, error) {
	name, err := rackName(cmd)
	if err != nil {
		return nil, err
	}
	up := slices.Contains(racksUp(), name)
	if !up && prepare && e.Own {
		text, err := e.Plain()
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(say(cmd, "%s", hintsOf(cmd).lines(text.Title+"\n\n"+text.Task+"\n")), fmt.Errorf("rack %q is not up: bring it up by your own binary, then run this command again", name))
	}
	if !up && prepare {
		return exerciseRack(cmd, e)
	}
	r, err := openRack(cmd)
	if err != nil {
		return nil, err
	}
	return e.On(r)
}

// exerciseRack brings the built-in rack up for an exercise.
func exerciseRack(cmd *cobra.Command, e *exercise.Exercise) (*exercise.Lab, error) {
	s, err := readRack(cmd, "")
	if err != nil {
		return nil, err
	}
	unix.Umask(umask)
	r, err := bringUp(cmd.Context(), s, nil)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "rack %q is up\n", s.Name); err != nil {
		return nil, err
	}
	return e.On(r)
}

func (f *exerciseFlags) printHint(cmd *cobra.Command, e *exercise.Exercise) error {
	text, err := e.Plain()
	if lab, labErr := f.lab(cmd, e, false); labErr == nil {
		text, err = lab.Text()
	}
	if err != nil {
		return err
	}
	if f.hint < 1 || f.hint > len(text.Hints) {
		return badUse("--hint=%d: exercise %s has hints 1 to %d", f.hint, e.Name, len(text.Hints))
	}
	return say(cmd, "%s", hintsOf(cmd).lines(text.Hints[f.hint-1]))
}

func checkExercise(cmd *cobra.Command, lab *exercise.Lab, answers map[string]string) error {
	report, err := lab.Check(cmd.Context(), answers)
	if err != nil {
		return err
	}
	err = show(cmd, report, func(out io.Writer, r *exercise.Report) error {
		for _, f := range r.Findings {
			if _, err := fmt.Fprintf(out, "%-8s %s\n", either(f.OK, "ok", "missing"), f.Text); err != nil {
				return err
			}
		}
		if r.Solved() {
			_, err := fmt.Fprintln(out, "solved")
			return err
		}
		return nil
	})
	if err == nil && !report.Solved() {
		err = exitCode(1)
	}
	return err
}
