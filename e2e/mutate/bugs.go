package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/tools/txtar"
)

// bugsFolder has the planted bugs, one archive (txtar) a subject. Each bug is three files of its archive:
//
//	-- bug: NAME --      has what must notice it (planted.by)
//	-- was: FILE --      has a text that occurs once in FILE
//	-- is --             has the text that takes its place
//
// The last line feed of each belongs to the archive and not to the text.
var bugsFolder = filepath.Join("e2e", "mutate", "planted")

// readBugs returns the planted bugs of a folder, in the order of file names.
func readBugs(folder string) (all []planted, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there are no planted bugs in %s", folder)
	}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			return nil, err
		}
		bugs, err := bugsOf(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, bugs...)
	}
	return all, err
}

// bugsOf returns the planted bugs of an archive.
func bugsOf(a *txtar.Archive) (bugs []planted, err error) {
	files := a.Files
	for ; len(files) >= 3; files = files[3:] {
		name, ok := strings.CutPrefix(files[0].Name, "bug: ")
		file, was := strings.CutPrefix(files[1].Name, "was: ")
		if !ok || !was || files[2].Name != "is" {
			return nil, fmt.Errorf("%q, %q, %q in place of bug: NAME, was: FILE, is", files[0].Name, files[1].Name, files[2].Name)
		}
		bugs = append(bugs, planted{name: name, file: filepath.FromSlash(file), was: body(&files[1]), is: body(&files[2]), by: body(&files[0])})
	}
	if len(files) > 0 {
		return nil, fmt.Errorf("%q is not the beginning of a whole bug: bug: NAME, was: FILE, is", files[0].Name)
	}
	return bugs, nil
}

// body returns the text of a file in an archive.
func body(f *txtar.File) string { return strings.TrimSuffix(string(f.Data), "\n") }
