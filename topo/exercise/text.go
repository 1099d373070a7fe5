package exercise

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed texts
var texts embed.FS

// Text is the text of an exercise: title, task and hints. A hint is a paragraph or more.
type Text struct {
	Title, Task string
	Hints       []string
}

// hintHeading begins a hint in a text.
const hintHeading = "\n## Hint\n"

// values are what texts can name. Files and hosts are those of the rack; without a rack those of the
// built-in one.
type values struct{ Client, Server, Capture string }

// Title returns the heading of the exercise's text.
func (e *Exercise) Title() (string, error) {
	t, err := e.text(values{})
	return t.Title, err
}

// Text returns the text of the exercise for the Lab's rack.
func (l *Lab) Text() (Text, error) {
	return l.exercise.text(values{Client: l.Client, Server: l.Server, Capture: l.CaptureFile()})
}

// Plain returns the text of the exercise for the built-in rack, for an exercise whose rack the learner brings up.
func (e *Exercise) Plain() (Text, error) {
	return e.text(values{Client: "cn0", Server: "ms0", Capture: e.Name + ".pcapng"})
}

func (e *Exercise) text(v values) (Text, error) {
	data, err := texts.ReadFile("texts/" + e.Name + ".md")
	if err != nil {
		return Text{}, err
	}
	t, err := template.New(e.Name).Option("missingkey=error").Parse(string(data))
	if err != nil {
		return Text{}, fmt.Errorf("text of exercise %s: %w", e.Name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		return Text{}, fmt.Errorf("text of exercise %s: %w", e.Name, err)
	}
	parts := strings.Split(b.String(), hintHeading)
	title, task, _ := strings.Cut(strings.TrimPrefix(parts[0], "# "), "\n")
	out := Text{Title: title, Task: strings.TrimSpace(task)}
	for _, h := range parts[1:] {
		out.Hints = append(out.Hints, strings.TrimSpace(h))
	}
	return out, nil
}
