// Package console runs the console blocks of the documents: Markdown blocks of the kind ```console
// with lines `$ command`, each followed by its output. A comment of the page says what its blocks
// need: <!-- console: sim --> only the program, <!-- console: rack --> root, and a rack that the
// page brings up and takes down. The package compares the output with the page; numbers, durations
// and names of racks may differ.
package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Kinds of pages, by what their blocks need.
const (
	Sim  = "sim"
	Rack = "rack"
	// Machines is a rack on three machines; e2e/machines runs these pages.
	Machines = "machines"
)

// commandLimit bounds one command of a page. An experiment takes seconds, or a minute on a busy machine.
const commandLimit = 5 * time.Minute

// Page is a Markdown file with console blocks.
type Page struct {
	// Path is relative to the root of the repository.
	Path string
	// Kind is Sim, Rack or Machines; "" if the page does not say.
	Kind  string
	Lines []string
}

var kindMark = regexp.MustCompile(`(?m)^<!-- console: (sim|rack|machines) -->$`)

const fence = "```"

// Pages reads the pages below root that have console blocks: README.md and those in docs, by path.
func Pages(root string) ([]Page, error) {
	paths := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		paths = append(paths, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		return nil, err
	}
	var pages []Page
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		if !strings.Contains(string(text), "\n"+fence+"console\n") {
			continue
		}
		p := Page{Path: path, Lines: strings.Split(string(text), "\n")}
		if m := kindMark.FindStringSubmatch(string(text)); m != nil {
			p.Kind = m[1]
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// Shell runs commands for pages.
type Shell struct {
	// Dir is the working directory, Env has variables to add to the environment.
	Dir string
	Env []string
}

// Run runs one command line and returns what it printed, on standard output and standard error.
func (s Shell) Run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.WaitDelay = s.Dir, time.Second
	cmd.Env = append(os.Environ(), s.Env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), fmt.Errorf("%s: still running after %v", command, commandLimit)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return string(out), fmt.Errorf("%s: %w", command, err)
	}
	return string(out), nil // the page shows the effect of the exit status
}

// Check runs the blocks of a page in their order. It returns the page with the output of this run,
// and the differences.
func (p Page) Check(ctx context.Context, s Shell) (now []string, differences []string, err error) {
	inside, skip := false, false
	for i, line := range p.Lines {
		switch {
		case line == fence+"console":
			inside, skip = true, false
		case inside && line == fence:
			inside, skip = false, false
		case inside && strings.HasPrefix(line, "$ "):
			now = append(now, line)
			out, err := s.Run(ctx, line[2:])
			if err != nil {
				return nil, nil, fmt.Errorf("%s:%d: %w", p.Path, i+1, err)
			}
			want := p.output(i + 1)
			got := strings.Split(strings.TrimRight(out, "\n"), "\n")
			if len(got) == 1 && got[0] == "" {
				got = nil
			}
			if same(want, got) {
				got = want // the page keeps its line
			} else {
				differences = append(differences, fmt.Sprintf("%s:%d: %s\nthe page has\n%s\nand now it prints\n%s",
					p.Path, i+1, line, strings.Join(want, "\n"), strings.Join(got, "\n")))
			}
			now = append(now, got...)
			skip = true
			continue
		}
		if !inside || !skip {
			now = append(now, line)
		}
	}
	return now, differences, nil
}

// output returns the output that the page shows from a line on.
func (p Page) output(from int) []string {
	for i := from; i < len(p.Lines); i++ {
		if p.Lines[i] == fence || strings.HasPrefix(p.Lines[i], "$ ") {
			return p.Lines[from:i]
		}
	}
	return p.Lines[from:]
}

// elision reports whether a line stands for any number of lines.
func elision(line string) bool {
	line = strings.TrimSpace(line)
	return line == "…" || line == "..."
}

// same reports whether an output is what a page shows.
func same(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if elision(want[0]) {
		for i := 0; i <= len(got); i++ {
			if same(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && Mask(want[0]) == Mask(got[0]) && same(want[1:], got[1:])
}

var (
	rackName = regexp.MustCompile(`rack "[^"]*"`)
	// number matches a number with its unit, but not the number in a name such as cn0.
	number = regexp.MustCompile(`(^|[^A-Za-z0-9_.])(0x[0-9a-f]+|\d+(?:[.,]\d+)*)(ns|µs|us|ms|s|m|h|k|M|G|KiB|MiB|GiB|%)?(?:\d[\d.]*(?:ns|µs|us|ms|s|m))*`)
	blanks = regexp.MustCompile(`[\s-]+`)
)

// Mask replaces what differs between runs: numbers with their units, the widths of columns, and
// names of racks.
func Mask(line string) string {
	line = rackName.ReplaceAllString(line, `rack "NAME"`)
	for range 2 { // adjacent numbers share the character between them
		line = number.ReplaceAllString(line, "${1}#")
	}
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}
