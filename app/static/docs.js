// validatorUrl null: by default Swagger UI sends the document to a public validator.
window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  layout: "BaseLayout",
});
