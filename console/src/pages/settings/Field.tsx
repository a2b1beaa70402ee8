// One line of a form with its label.

interface FieldProps {
  id: string;
  label: string;
  value: string;
  onChange(value: string): void;
  type?: string;
  required?: boolean;
  hint?: string | undefined;
}

export function Field({ id, label, value, onChange, type = "text", required = false, hint }: FieldProps) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type={type}
        value={value}
        required={required}
        aria-describedby={hint ? `${id}-said` : undefined}
        autoComplete="off"
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      {hint && (
        <div id={`${id}-said`} className="quiet small">
          {hint}
        </div>
      )}
    </div>
  );
}
